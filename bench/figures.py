"""What a measurement found: frozen, and one JSON object a figure, as children print them and the report reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import fmean, median

import msgspec

Unit = str
"""What a rate counts: `requests`, `reservations`, `messages`, `rows`, `orders`. Never mixed in one column."""


class Measure(StrEnum):
    """What was done, at full speed unless it says otherwise."""

    FLOOR = "floor"
    ACCEPT = "accept"
    ACCEPT_AT_RATE = "accept_at_rate"
    REJECT = "reject"
    DRAIN = "drain"
    PAYMENT = "payment"
    EXPIRY = "expiry"
    RUSH = "rush"
    HOSTILE = "hostile"
    SOAK = "soak"
    KILLED = "killed"


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from a call to its answer, by nearest rank. `mean_ms`: None in what an earlier bench wrote, and of
    who does not say it."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    mean_ms: float | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What buyers were told, held against the books once nothing moves any more.

    `told`: who heard "yours". `sold`: orders there are. `oversold`: units sold beyond the stock. `lost`: told, and no
    order. `in_doubt`: units taken from the stock that no order has and nobody gives back.
    """

    stock: int
    told: int
    sold: int
    oversold: int
    lost: int
    in_doubt: int

    @property
    def clean(self) -> bool:
        return not (self.oversold or self.lost or self.in_doubt)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process while it was measured: cores used (1.0 is one whole core), and its largest resident memory."""

    process: str
    cores: float
    resident_mb: float


class Variant(StrEnum):
    """In which of several ways a measure was taken: figures of two ways are no repeats of each other."""

    ONLY = ""
    """There is one."""
    HALF_THE_PEAK = "half the peak rate"
    TENTH_OF_THE_PEAK = "a tenth of the peak rate"
    TENTH_AMONG_ALL = "an order consumer beside it, a tenth of the peak rate"
    GOOD_ALONE = "good clients alone"
    """What they get while nobody is hostile."""
    FIRST_HALF = "first half"
    SECOND_HALF = "second half"
    ORDER_KILLED = "order killed"
    TIMEOUT_KILLED = "timeout killed"
    EVENTS_KILLED = "events killed"
    API_KILLED = "api killed"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one subject. `answers` counts by code what was heard."""

    subject: str
    measure: Measure
    clients: int
    unit: Unit
    count: int
    seconds: float
    variant: Variant = Variant.ONLY
    latency: Latency | None = None
    audit: Audit | None = None
    usage: tuple[Usage, ...] = ()
    servers: tuple[Usage, ...] = ()
    """What the servers used meanwhile, as far as they could be watched."""
    answers: dict[str, int] = {}
    note: str = ""

    @property
    def rate_per_s(self) -> float:
        return self.count / self.seconds if self.seconds > 0 else 0.0


def latency_of(seconds: Iterable[float]) -> Latency | None:
    """None of nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    return Latency(
        p50_ms=_rank(ordered, 0.5),
        p99_ms=_rank(ordered, 0.99),
        p999_ms=_rank(ordered, 0.999),
        mean_ms=fmean(ordered) * 1000,
    )


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000


def median_rate(figures: Sequence[Figure]) -> float:
    """Per second, over repeats of one measurement."""
    return median(figure.rate_per_s for figure in figures)
