"""What makes a figure doubtful, in words for its note. "" where nothing does."""

from __future__ import annotations

from collections.abc import Iterable

from bench.figures import Usage

LIMITED_AT = 0.9
"""Of a core: a process that asks, and used so much of the one that Python gives it, may have measured itself."""
UNDER_WAY_LEAST, UNDER_WAY_MOST = 0.8, 1.25
"""Of the clients, by Little's law: beyond it, what is counted and what is timed are not the same requests."""


def limited(used: Usage) -> str:
    """Of the process that asks."""
    return f"the {used.process} used {used.cores:.2f} of a core: it may be the limit" if used.cores > LIMITED_AT else ""


def starved(clients_starved: int, clients: int) -> str:
    """Clients without an answer in the measured time, in a closed loop."""
    return f"{clients_starved:,} of {clients:,} clients had no answer in the measured time" if clients_starved else ""


def contradicted(under_way: float | None, clients: int) -> str:
    """Little's law: in a closed loop the rate, times the mean wait of what is counted, is the number of clients. None:
    it does not hold here, as clients came by a clock, or each once."""
    if under_way is None or UNDER_WAY_LEAST <= under_way / clients <= UNDER_WAY_MOST:
        return ""
    return f"rate × mean wait is {under_way:,.0f} requests under way, of {clients:,} clients: not all were measured"


def joined(parts: Iterable[str]) -> str:
    """As one note."""
    return "; ".join(part for part in parts if part)
