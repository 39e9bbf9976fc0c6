"""INFO, as a mapping."""

from __future__ import annotations

from collections.abc import Mapping


def parsed(reply: object) -> Mapping[str, str]:
    """`name:value` a line; headings and whatever else are left out. Nothing, where the reply is no text."""
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
