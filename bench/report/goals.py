"""The goals, and what a run says of each: by ratios to what was measured beside it, and by bounds.

Absolute rates belong to one machine; the ratios carry over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.figures import Measure, Variant
from bench.report.facts import FactName
from bench.report.run import Run
from bench.report.sources import (
    Better,
    Delay,
    Evidence,
    Found,
    Kept,
    LargestProcess,
    MostOversold,
    Other,
    Rate,
    Sold,
    Source,
    UncleanAudits,
    Worst,
)
from bench.subjects import DROPGATE, ENGINE, Subject


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """`times` what `of` finds; without `of` the number itself. `enough` meets the goal whatever `of` finds."""

    times: float
    of: Source | None = None
    enough: float | None = None


@dataclass(frozen=True, kw_only=True)
class AtMost:
    """`limit`, on top of what `above` finds."""

    limit: float
    above: Source | None = None


@dataclass(frozen=True, kw_only=True)
class Exactly:
    number: int


Bound = AtLeast | AtMost | Exactly


@dataclass(frozen=True)
class Goal:
    """What is looked at, and its bound: once for people, once to be judged by."""

    what: str
    wanted: str
    found: Source
    bound: Bound


class Verdict(StrEnum):
    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """`found` is held against `beside`, where the bound is one of another number, and against `limit` in the end."""

    goal: Goal
    verdict: Verdict
    found: Found | None = None
    beside: Found | None = None
    limit: float | None = None


def _on_each(measure: Measure, unit: str, subjects: tuple[Subject, ...], clients: int) -> tuple[Rate, ...]:
    return tuple(Rate(subject, measure, unit, clients) for subject in subjects)


_ACCEPT_64 = Better(_on_each(Measure.ACCEPT, "reservations", DROPGATE, 64))
_ACCEPT_256 = Better(_on_each(Measure.ACCEPT, "reservations", DROPGATE, 256))
_REJECT_64 = Better(_on_each(Measure.REJECT, "requests", DROPGATE, 64))
_ENGINES = _on_each(Measure.ACCEPT, "reservations", ENGINE, 1_000)
_JAVA = Rate(Subject.JAVA_HALF, Measure.FLOOR, "messages", 64)
_INSERT = Rate(Subject.RAW_INSERT, Measure.FLOOR, "rows")


def _evalsha(clients: int) -> Rate:
    return Rate(Subject.FLOOR_EVALSHA, Measure.FLOOR, "requests", clients)


def _peak(subject: Subject) -> Rate:
    return Rate(subject, Measure.ACCEPT, "reservations")


def _p50_of_one(subject: Subject, measure: Measure) -> Delay:
    return Delay(subject, measure, 0.5, clients=1)


def _p99_at(subject: Subject, variant: Variant) -> Delay:
    return Delay(subject, Measure.ACCEPT_AT_RATE, 0.99, variant=variant)


def _drain(subject: Subject) -> Rate:
    return Rate(subject, Measure.DRAIN, "orders")


_DRAINED = AtLeast(times=0.35, of=_INSERT, enough=8_000)

# fmt: off
GOALS = (
    Goal("HTTP accept, 64 connections, better transport", "≥ 1.0 × Starlette + one EVALSHA",
         _ACCEPT_64, AtLeast(times=1.0, of=_evalsha(64))),
    Goal("HTTP accept, 256 connections, better transport", "≥ 1.2 × Starlette + one EVALSHA",
         _ACCEPT_256, AtLeast(times=1.2, of=_evalsha(256))),
    Goal("HTTP reject (sold out), 64 connections, better transport", "≥ 1.5 × Starlette + one EVALSHA",
         _REJECT_64, AtLeast(times=1.5, of=_evalsha(64))),
    Goal("engine without HTTP, 1,000 clients, better transport", "≥ 1.5 × Java client, 64 threads",
         Better(_ENGINES), AtLeast(times=1.5, of=_JAVA)),
    Goal("engine without HTTP, 1,000 clients, the other transport", "≥ 1.2 × Java client, 64 threads",
         Other(_ENGINES), AtLeast(times=1.2, of=_JAVA)),
    Goal("engine against one half message per order, rocketmq5", "≥ 12 ×, each at its best",
         _peak(Subject.ENGINE_5), AtLeast(times=12, of=_peak(Subject.ONE_HALF_5))),
    Goal("engine against one half message per order, rocketmq4", "≥ 4 ×, each at its best",
         _peak(Subject.ENGINE_4), AtLeast(times=4, of=_peak(Subject.ONE_HALF_4))),
    Goal("HTTP accept p50, one client, rocketmq5", "≤ one half message + 2 ms",
         _p50_of_one(Subject.DROPGATE_5, Measure.ACCEPT),
         AtMost(limit=2, above=_p50_of_one(Subject.HALF_SEND_5, Measure.FLOOR))),
    Goal("HTTP accept p50, one client, rocketmq4", "≤ one half message + 2 ms",
         _p50_of_one(Subject.DROPGATE_4, Measure.ACCEPT),
         AtMost(limit=2, above=_p50_of_one(Subject.HALF_SEND_4, Measure.FLOOR))),
    Goal("HTTP accept p99 at half the peak rate, rocketmq5", "≤ 40 ms",
         _p99_at(Subject.DROPGATE_5, Variant.HALF_THE_PEAK), AtMost(limit=40)),
    Goal("HTTP accept p99 at half the peak rate, rocketmq4", "≤ 40 ms",
         _p99_at(Subject.DROPGATE_4, Variant.HALF_THE_PEAK), AtMost(limit=40)),
    Goal("HTTP accept p99 at a tenth of the peak rate, rocketmq5", "≤ 10 ms",
         _p99_at(Subject.DROPGATE_5, Variant.TENTH_OF_THE_PEAK), AtMost(limit=10)),
    Goal("HTTP accept p99 at a tenth of the peak rate, rocketmq4", "≤ 10 ms",
         _p99_at(Subject.DROPGATE_4, Variant.TENTH_OF_THE_PEAK), AtMost(limit=10)),
    Goal("order drain, rocketmq5", "≥ 8,000/s, or ≥ 0.35 × multi-row INSERT", _drain(Subject.DROPGATE_5), _DRAINED),
    Goal("order drain, rocketmq4", "≥ 8,000/s, or ≥ 0.35 × multi-row INSERT", _drain(Subject.DROPGATE_4), _DRAINED),
    Goal("10,000 unpaid orders due at once", "all cancelled and back on sale in ≤ 10 s",
         Worst(FactName.EXPIRED_AFTER), AtMost(limit=10)),
    Goal("memory of a process of Dropgate", "≤ 150 MB", LargestProcess(), AtMost(limit=150)),
    Goal("memory over a soak of 10 minutes", "flat: ≤ 10 MB more in its second half, each process of Dropgate",
         Worst(FactName.SOAK_GREW), AtMost(limit=10)),
    Goal("memory of Redis a live reservation", "≤ 400 bytes", Worst(FactName.REDIS_BYTES), AtMost(limit=400)),
    Goal("1,000 units, 100,000 buyers over HTTP", "exactly 1,000 sold",
         Sold(stock=1_000, buyers=100_000), Exactly(number=1_000)),
    Goal("a tenth of the requests hostile", "the good ones keep ≥ 80 % of their rate",
         Kept(DROPGATE), AtLeast(times=0.8)),
    Goal("audits, but of what is meant to fail", "all clean", UncleanAudits(), Exactly(number=0)),
    Goal("what is meant to fail (naive)", "seen failing: ≥ 1 oversold, or the audits see nothing",
         MostOversold(), AtLeast(times=1)),
)
# fmt: on


# What `make bench-check` holds a change to: ratios alone, with margins so wide that a busy machine does not cross them.
# fmt: off
MARGINS = (
    Goal("HTTP accept, 64 connections, better transport", "≥ 0.5 × Starlette + one EVALSHA",
         _ACCEPT_64, AtLeast(times=0.5, of=_evalsha(64))),
    Goal("HTTP reject (sold out), 64 connections, better transport", "≥ 0.9 × Starlette + one EVALSHA",
         _REJECT_64, AtLeast(times=0.9, of=_evalsha(64))),
    Goal("engine against one half message per order, rocketmq5", "≥ 4 ×",
         _peak(Subject.ENGINE_5), AtLeast(times=4, of=_peak(Subject.ONE_HALF_5))),
    Goal("order drain, rocketmq5", "≥ 0.06 × multi-row INSERT",
         _drain(Subject.DROPGATE_5), AtLeast(times=0.06, of=_INSERT)),
    Goal("10,000 unpaid orders due at once", "all cancelled and back on sale in ≤ 20 s",
         Worst(FactName.EXPIRED_AFTER), AtMost(limit=20)),
    Goal("memory of Redis a live reservation", "≤ 400 bytes", Worst(FactName.REDIS_BYTES), AtMost(limit=400)),
    Goal("audits, but of what is meant to fail", "all clean", UncleanAudits(), Exactly(number=0)),
)
# fmt: on


def judge_all(run: Run, goals: Sequence[Goal] = GOALS) -> tuple[Judged, ...]:
    """In their order."""
    evidence = Evidence(run)
    return tuple(_judge(goal, evidence) for goal in goals)


def _judge(goal: Goal, evidence: Evidence) -> Judged:
    found, beside = goal.found.read(evidence), _beside(goal.bound, evidence)
    limit = _limit(goal.bound, beside)
    if found is None or limit is None:
        return Judged(goal=goal, verdict=Verdict.NOT_MEASURED, found=found, beside=beside)
    verdict = Verdict.MET if _within(goal.bound, found.value, limit) else Verdict.MISSED
    if _may_yet_change(goal, verdict, found, beside):
        verdict = Verdict.NOT_MEASURED
    return Judged(goal=goal, verdict=verdict, found=found, beside=beside, limit=limit)


def _source(bound: Bound) -> Source | None:
    match bound:
        case AtLeast(of=source) | AtMost(above=source):
            return source
        case Exactly():
            return None


def _beside(bound: Bound, evidence: Evidence) -> Found | None:
    source = _source(bound)
    return None if source is None else source.read(evidence)


def _limit(bound: Bound, beside: Found | None) -> float | None:
    """None: it hangs on a number that was not measured."""
    match bound:
        case AtLeast(times=times, of=None):
            return times
        case AtLeast(times=times, enough=enough):
            return min(_known(enough, times * beside.value if beside else None), default=None)
        case AtMost(limit=limit, above=None):
            return limit
        case AtMost(limit=limit):
            return limit + beside.value if beside else None
        case Exactly(number=number):
            return number


def _known(*limits: float | None) -> Iterator[float]:
    return (limit for limit in limits if limit is not None)


def _may_yet_change(goal: Goal, verdict: Verdict, found: Found, beside: Found | None) -> bool:
    """By what was not measured: the better of two falls short by one alone, or the lesser of two is met by one alone;
    or it fell short of `enough`, and what else would do is not known."""
    if isinstance(goal.found, Kept) and found.missing:
        return verdict is Verdict.MET
    if verdict is Verdict.MET:
        return False
    if isinstance(goal.found, Better) and found.missing:
        return True
    return isinstance(goal.bound, AtLeast) and goal.bound.enough is not None and beside is None


def _within(bound: Bound, value: float, limit: float) -> bool:
    """The border belongs to what is met. Rates are quotients: what differs by rounding alone is on the border."""
    if math.isclose(value, limit, rel_tol=1e-9):
        return True
    match bound:
        case AtLeast():
            return value > limit
        case AtMost():
            return value < limit
        case Exactly():
            return False
