"""Which properties a message has of its sender: the client package reads one by its name, and lists none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

NAMES = "DROPGATE_PROPERTIES"
"""The property that names the others. What is sent without it by other clients has no properties here."""
NAME_END = " "


def with_names(properties: Mapping[str, str]) -> dict[str, str]:
    """As they are sent. ValueError: a name with a blank in it."""
    if not properties:
        return {}
    if any(NAME_END in name for name in properties):
        raise ValueError(f"a property's name has no blank: {sorted(properties)}")
    return {**properties, NAMES: NAME_END.join(properties)}


def read(names: str, value_of: Callable[[str], str]) -> dict[str, str]:
    return {name: value_of(name) for name in _names(names)}


def _names(text: str) -> Iterable[str]:
    return (name for name in text.split(NAME_END) if name)
