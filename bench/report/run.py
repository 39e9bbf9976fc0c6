"""All that one run of the bench found, as one JSON document."""

from __future__ import annotations

from datetime import datetime

import msgspec

from bench.figures import Figure
from bench.report.facts import Fact


class Unreadable(Exception):
    """A stored run that cannot be read; the message says what to do."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """`started_at` is UTC. `versions`: by name, of what was measured and of what it ran on. `unwatched`: one sentence
    each server whose cores and memory no figure has."""

    started_at: datetime
    machine: str
    versions: dict[str, str]
    repeats: int
    figures: tuple[Figure, ...]
    facts: tuple[Fact, ...] = ()
    unwatched: tuple[str, ...] = ()


def encode(run: Run) -> bytes:
    """Indented, with a line feed at its end: it is kept beside code, and compared."""
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"


def decode(document: bytes) -> Run:
    """Raises Unreadable. Fields that are not known here are left out: an older bench reads a newer run."""
    try:
        return msgspec.json.decode(document, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"This is not a run of the bench: {error}. Measure again, with this version.") from None
