"""Two runs beside each other: what got faster, what got slower, which goals changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rich.table import Table

from bench.report.goals import Verdict, judge_all
from bench.report.groups import Group, Key, groups_of
from bench.report.run import Run
from bench.report.words import LATENCIES, NONE, P99, clients, number, spread
from service.cli.output import table

SAME_WITHIN = 0.1
"""A rate that differs by less than a tenth is the same: two runs of one version on one machine differ so much."""
REPEATS_LEAST = 2
"""Of each run, for a verdict: the first of a run is the slowest, as its servers are cold."""


class Change(StrEnum):
    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"
    """One of the runs has it once: how far its repeats lie apart is not known."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One measurement that both runs have."""

    key: Key
    before: Group
    after: Group

    @property
    def ratio(self) -> float | None:
        """None: the rate before was 0."""
        return _ratio(self.after.rate_per_s, self.before.rate_per_s)

    @property
    def p99_ratio(self) -> float | None:
        before, after = self.before.latency_ms(LATENCIES[P99]), self.after.latency_ms(LATENCIES[P99])
        return _ratio(after.median, before.median) if before and after else None

    @property
    def change(self) -> Change:
        """Another one only where no repeat of the one run is as fast as any of the other."""
        before, after = self.before.rates, self.after.rates
        if min(len(self.before.figures), len(self.after.figures)) < REPEATS_LEAST:
            return Change.CANNOT_TELL
        if after.median < before.median * (1 - SAME_WITHIN) and after.most < before.least:
            return Change.SLOWER
        if after.median > before.median * (1 + SAME_WITHIN) and after.least > before.most:
            return Change.FASTER
        return Change.SAME

    @property
    def broke(self) -> bool:
        """Its audits were clean, and are not any more."""
        return self.before.clean and not self.after.clean


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`regressions`: one sentence each, for what a change should not do."""

    pairs: tuple[Pair, ...]
    only_before: tuple[Key, ...]
    only_after: tuple[Key, ...]
    other_machine: bool
    regressions: tuple[str, ...]


def compare(before: Run, after: Run) -> Comparison:
    old = {group.key: group for group in groups_of(before.figures)}
    new = {group.key: group for group in groups_of(after.figures)}
    pairs = tuple(Pair(key=key, before=old[key], after=new[key]) for key in old if key in new)
    return Comparison(
        pairs=pairs,
        only_before=tuple(key for key in old if key not in new),
        only_after=tuple(key for key in new if key not in old),
        other_machine=before.machine != after.machine,
        regressions=(*_worse(pairs), *_goals_lost(before, after)),
    )


def _worse(pairs: tuple[Pair, ...]) -> Iterator[str]:
    for pair in pairs:
        if pair.change is Change.SLOWER:
            before, after = number(pair.before.rate_per_s), number(pair.after.rate_per_s)
            yield f"{_named(pair.key)}: {after} {pair.key.unit}/s, before {before}."
        if pair.broke:
            yield f"{_named(pair.key)}: its audit was clean, and is not any more."


def _goals_lost(before: Run, after: Run) -> Iterator[str]:
    for old, new in zip(judge_all(before), judge_all(after), strict=True):
        if old.verdict is Verdict.MET and new.verdict is Verdict.MISSED:
            yield f"Goal missed that was met: {new.goal.what}, {new.goal.wanted}."


def comparison_table(found: Comparison) -> Table:
    """The ratio is after : before; of a rate more is better, of the p99 less."""
    left, right = ("subject", "measure", "unit", "rate is"), ("clients", "before/s", "after/s", "ratio", "p99 ratio")
    columns = ("subject", "measure", "clients", "before/s", "after/s", "unit", "ratio", "p99 ratio", "rate is")
    rows = [_row(pair) for pair in found.pairs]
    return table("After : before", columns, rows, right=right, whole_words=left)


def notes(found: Comparison) -> Iterator[str]:
    """What to know beside the table; then the regressions, or that there are none as far as can be told."""
    if found.other_machine:
        yield "The machines differ: only the ratios to floors carry over, so compare the goals, not the rates."
    for word, keys in (("before", found.only_before), ("after", found.only_after)):
        if keys:
            yield f"Measured {word} only: {'; '.join(_named(key) for key in keys)}."
    untold = sum(pair.change is Change.CANNOT_TELL for pair in found.pairs)
    if untold:
        yield (
            f"Of {untold} of {len(found.pairs)} measurements nobody can tell whether their rate changed:"
            f" one of the runs has them once. Measure both with --repeats {REPEATS_LEAST} or more."
        )
    yield from found.regressions
    if not found.regressions:
        yield "Nothing got worse, of what can be told." if untold else "Nothing got worse."


def _row(pair: Pair) -> tuple[str, ...]:
    key, rates = pair.key, (pair.before.rates, pair.after.rates)
    measure = f"{key.measure}, {key.variant}" if key.variant else str(key.measure)
    before, after = map(spread, rates)
    ratios = (NONE if ratio is None else f"{ratio:.2f}" for ratio in (pair.ratio, pair.p99_ratio))
    return (key.subject, measure, f"{key.clients:,}", before, after, key.unit, *ratios, pair.change)


def _named(key: Key) -> str:
    return ", ".join(filter(None, (key.subject, key.measure, key.variant, clients(key.clients))))


def _ratio(after: float, before: float) -> float | None:
    return after / before if before > 0 else None
