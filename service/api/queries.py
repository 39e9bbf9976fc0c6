"""The query of a URL: names that a call knows, each once."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from service.api.http import Call
from service.domain.errors import InvalidRequest

QUERY_MAX = 2_048
"""Bytes: no name of ours has a value that long."""
FIELDS_MAX = 16


def query_of(call: Call, names: Collection[str]) -> dict[str, str]:
    """The query's fields by name. InvalidRequest: it cannot be read, or has one that this call does not know, or one
    twice."""
    found: dict[str, str] = {}
    for name, value in _fields(call.scope.get("query_string", b"")):
        if name not in names:
            raise InvalidRequest("query", "has a name that this call does not know")
        if name in found:
            raise InvalidRequest(name, "is given twice")
        found[name] = value
    return found


def _fields(raw: bytes) -> list[tuple[str, str]]:
    if not raw:
        return []
    if len(raw) > QUERY_MAX:
        raise InvalidRequest("query", f"has more than {QUERY_MAX} bytes")
    try:
        text = raw.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidRequest("query", "cannot be read") from None
