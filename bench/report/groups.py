"""Repeats of one measurement, taken together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from bench.figures import Audit, Figure, Latency, Measure, Unit, Usage, Variant, median_rate


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of some repeats, and how far they lie apart."""

    median: float
    least: float
    most: float


def spread_of(values: Sequence[float]) -> Spread | None:
    """None of nothing."""
    return Spread(median=median(values), least=min(values), most=max(values)) if values else None


class Key(NamedTuple):
    """What makes two figures repeats of each other."""

    subject: str
    measure: Measure
    clients: int
    unit: Unit
    variant: Variant


@dataclass(frozen=True, kw_only=True)
class Group:
    """At least one figure, all with this key."""

    key: Key
    figures: tuple[Figure, ...]

    @property
    def rate_per_s(self) -> float:
        return median_rate(self.figures)

    @property
    def rates(self) -> Spread:
        """Per second."""
        rates = [figure.rate_per_s for figure in self.figures]
        return Spread(median=self.rate_per_s, least=min(rates), most=max(rates))

    def latency_ms(self, rank: Callable[[Latency], float]) -> Spread | None:
        return spread_of([rank(figure.latency) for figure in self.figures if figure.latency is not None])

    @property
    def audits(self) -> tuple[Audit, ...]:
        return tuple(figure.audit for figure in self.figures if figure.audit is not None)

    def worst(self, count: Callable[[Audit], int]) -> int | None:
        """The largest of the repeats: a median would hide what went wrong once. None: there is no audit."""
        return max(map(count, self.audits), default=None)

    @property
    def clean(self) -> bool:
        return all(audit.clean for audit in self.audits)

    @property
    def server_cores(self) -> dict[str, float]:
        """By server, the median of the repeats. Empty where none was watched."""
        used = by_process(figure.servers for figure in self.figures)
        return {server: median(usage.cores for usage in them) for server, them in used.items()}

    @property
    def other_cores(self) -> float | None:
        """Of all processes together that are no servers, the median of the repeats. None: nobody looked."""
        sums = [sum(usage.cores for usage in figure.usage) for figure in self.figures if figure.usage]
        return median(sums) if sums else None


def by_process(repeats: Iterable[Sequence[Usage]]) -> dict[str, list[Usage]]:
    """In the order in which they first come."""
    found: dict[str, list[Usage]] = {}
    for usages in repeats:
        for usage in usages:
            found.setdefault(usage.process, []).append(usage)
    return found


def key_of(figure: Figure) -> Key:
    return Key(figure.subject, figure.measure, figure.clients, figure.unit, figure.variant)


def groups_of(figures: Iterable[Figure]) -> tuple[Group, ...]:
    """In the order of each group's first figure."""
    found: dict[Key, list[Figure]] = {}
    for figure in figures:
        found.setdefault(key_of(figure), []).append(figure)
    return tuple(Group(key=key, figures=tuple(members)) for key, members in found.items())
