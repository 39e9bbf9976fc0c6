"""What the demo counts while it runs."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from dataclasses import dataclass, field

MS = 1000


@dataclass(slots=True)
class Figures:
    """Live figures of one run. `accept_ms` has the time to each 202, from the request that was answered so."""

    accepted: int = 0
    refused: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    """By the answer that was none."""
    told_again: Counter[str] = field(default_factory=Counter)
    """What those heard who sent an answered request again, with the same key."""
    replayed: int = 0
    requests: int = 0
    in_doubt: int = 0
    paid_late: int = 0
    refunds: int = 0
    unexpected: Counter[str] = field(default_factory=Counter)
    accept_ms: array[float] = field(default_factory=lambda: array("d"))

    def surprise(self, what: str) -> None:
        """An answer that no buyer of the demo should get."""
        self.unexpected[what] += 1

    @property
    def asked_again(self) -> int:
        return self.told_again.total()

    @property
    def retried(self) -> int:
        return self.retries.total()


def percentile(values: array[float], share: float) -> float | None:
    """Nearest rank; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started
