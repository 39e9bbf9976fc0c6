"""Where a goal takes its numbers from: each source finds one number among what was measured, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from bench.figures import Figure, Measure, Unit, Variant
from bench.report.facts import Fact, FactName
from bench.report.groups import Group, groups_of
from bench.report.run import Run
from bench.report.words import clients
from bench.subjects import OWN_PROCESS, Subject, may_fail

NAMED_MAX = 3
"""So many subjects are named in one number: more would not fit beside it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A number as it was measured; `of` names what it was measured on, "" where the source says that already.
    `missing`: what the source looks at besides, and nobody measured."""

    value: float
    unit: str
    of: str = ""
    missing: tuple[str, ...] = ()


class Evidence:
    """A run, with its repeats taken together."""

    def __init__(self, run: Run) -> None:
        self.figures: Sequence[Figure] = run.figures
        self.facts: Sequence[Fact] = run.facts
        self._groups = groups_of(run.figures)

    def groups(self, measure: Measure, subject: str, at: int | None, variant: Variant | None = None) -> list[Group]:
        """`at`: with so many clients. None: any number of clients, any variant."""
        return [
            group
            for group in self._groups
            if (group.key.measure, group.key.subject) == (measure, subject)
            and at in (None, group.key.clients)
            and variant in (None, group.key.variant)
        ]


class Source(Protocol):
    def read(self, evidence: Evidence) -> Found | None: ...


@dataclass(frozen=True)
class Rate:
    """Per second, the median of the repeats. `clients` None: at whatever number of clients it is highest."""

    subject: Subject
    measure: Measure
    unit: Unit
    clients: int | None = None

    def read(self, evidence: Evidence) -> Found | None:
        groups = evidence.groups(self.measure, self.subject, self.clients)
        rates = [group.rate_per_s for group in groups if group.key.unit == self.unit]
        return Found(value=max(rates), unit=f"{self.unit}/s", of=self.subject) if rates else None


@dataclass(frozen=True)
class Better:
    """The larger of those that were measured; it says which were not."""

    sources: tuple[Rate, ...]

    def read(self, evidence: Evidence) -> Found | None:
        found = [(source, source.read(evidence)) for source in self.sources]
        missing = tuple(str(source.subject) for source, it in found if it is None)
        best = max((it for _, it in found if it is not None), key=_value, default=None)
        return None if best is None else replace(best, missing=missing)


@dataclass(frozen=True)
class Other:
    """The smallest; nothing, where one of them was not measured."""

    sources: tuple[Rate, ...]

    def read(self, evidence: Evidence) -> Found | None:
        found = [it for source in self.sources if (it := source.read(evidence)) is not None]
        return min(found, key=_value) if len(found) == len(self.sources) else None


@dataclass(frozen=True)
class Delay:
    """Milliseconds that a share of the calls take at most: 0.5 or 0.99."""

    subject: Subject
    measure: Measure
    share: float
    clients: int | None = None
    variant: Variant | None = None

    def read(self, evidence: Evidence) -> Found | None:
        """The slowest, where several groups fit."""
        groups = evidence.groups(self.measure, self.subject, self.clients, self.variant)
        spreads = [group.latency_ms(lambda it: it.p50_ms if self.share == 0.5 else it.p99_ms) for group in groups]
        delays = [spread.median for spread in spreads if spread is not None]
        return Found(value=max(delays), unit="ms", of=self.subject) if delays else None


@dataclass(frozen=True)
class Worst:
    """The median of each subject's facts of one name, and of these the largest."""

    name: FactName

    def read(self, evidence: Evidence) -> Found | None:
        values: dict[tuple[str, str], list[float]] = {}
        for fact in evidence.facts:
            if fact.name == self.name:
                values.setdefault((fact.subject, fact.unit), []).append(fact.value)
        found = (Found(value=median(them), unit=unit, of=subject) for (subject, unit), them in values.items())
        return max(found, key=_value, default=None)


@dataclass(frozen=True)
class LargestProcess:
    """Resident megabytes of that process of Dropgate which ever had most. 0 says that nobody looked."""

    def read(self, evidence: Evidence) -> Found | None:
        own = (
            Found(value=usage.resident_mb, unit="MB", of=f"{usage.process} ({figure.subject})")
            for figure in evidence.figures
            for usage in figure.usage
            if usage.process.startswith(OWN_PROCESS) and usage.resident_mb > 0
        )
        return max(own, key=_value, default=None)


@dataclass(frozen=True)
class Sold:
    """Of each rush of so many buyers or more for so many units: the number sold that is furthest from the stock."""

    stock: int
    buyers: int

    def read(self, evidence: Evidence) -> Found | None:
        rushes = (
            Found(value=figure.audit.sold, unit="sold", of=figure.subject)
            for figure in evidence.figures
            if figure.measure is Measure.RUSH and figure.count >= self.buyers and not may_fail(figure.subject)
            if figure.audit is not None and figure.audit.stock == self.stock
        )
        return max(rushes, key=lambda found: abs(found.value - self.stock), default=None)


@dataclass(frozen=True)
class Kept:
    """The share of their rate that good clients keep among hostile ones: of the subjects the least; it says which were
    not measured."""

    subjects: tuple[Subject, ...]

    def read(self, evidence: Evidence) -> Found | None:
        found = {subject: list(self._shares(evidence, subject)) for subject in self.subjects}
        missing = tuple(str(subject) for subject, shares in found.items() if not shares)
        least = min((it for shares in found.values() for it in shares), key=_value, default=None)
        return None if least is None else replace(least, missing=missing)

    @staticmethod
    def _shares(evidence: Evidence, subject: Subject) -> Iterator[Found]:
        for hostile in evidence.groups(Measure.HOSTILE, subject, None, Variant.ONLY):
            for alone in evidence.groups(Measure.HOSTILE, subject, hostile.key.clients, Variant.GOOD_ALONE):
                if alone.rate_per_s > 0 and alone.key.unit == hostile.key.unit:
                    share = hostile.rate_per_s / alone.rate_per_s
                    yield Found(value=share, unit="× their rate", of=f"{subject}, {clients(alone.key.clients)}")


@dataclass(frozen=True)
class UncleanAudits:
    """How many audits are not clean, of those that must be."""

    def read(self, evidence: Evidence) -> Found | None:
        audited = [figure for figure in evidence.figures if figure.audit and not may_fail(figure.subject)]
        unclean = [figure.subject for figure in audited if figure.audit and not figure.audit.clean]
        named = list(dict.fromkeys(unclean))
        of = ", ".join(named[:NAMED_MAX]) + (", …" if len(named) > NAMED_MAX else "")
        return Found(value=len(unclean), unit=f"of {len(audited)} unclean", of=of) if audited else None


@dataclass(frozen=True)
class MostOversold:
    """Units that a strategy which is there to be seen failing sold beyond its stock: of its audits the worst."""

    def read(self, evidence: Evidence) -> Found | None:
        failing = (
            Found(value=figure.audit.oversold, unit="oversold", of=figure.subject)
            for figure in evidence.figures
            if figure.audit is not None and may_fail(figure.subject)
        )
        return max(failing, key=_value, default=None)


def _value(found: Found) -> float:
    return found.value
