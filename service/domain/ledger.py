"""The ledger: every term of I1 from SQL and from Redis, and whether they balance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from service.domain.ids import SaleId
from service.domain.stock import SlotCount


@dataclass(frozen=True, kw_only=True)
class SqlTerms:
    """Units in SQL at one instant. `moved` is the sum of the stock_movements ledger; it must equal `available`.
    `adjusting` counts the adjustments that are not finished."""

    initial: int
    adjusted: int
    available: int
    awaiting_payment: int
    paid: int
    refunded_kept: int
    under_review: int
    moved: int
    buyers_units: int
    buyers_over_limit: int
    owed: int
    adjusting: int
    payments_succeeded: int
    payments_applied: int
    payments_waiting: int
    refunds: int
    duplicate_refunds: int


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """I1-I6 of one sale. `slots` is empty where Redis does not decide; None in it: a slot that is lost or away.

    `wanted` is the authority that the sale is on its way to. `overdue_s`: by segment, the age of the oldest batch that
    has had no orders for longer than I5 allows.
    """

    sale_id: SaleId
    authority: str
    epoch: int
    sql: SqlTerms
    slots: dict[int, SlotCount | None]
    wanted: str | None = None
    overdue_s: dict[int, int] = field(default_factory=dict)

    @property
    def live_sql(self) -> int:
        sql = self.sql
        return sql.awaiting_payment + sql.paid + sql.refunded_kept + sql.under_review

    def problems(self) -> tuple[str, ...]:
        """Each broken invariant in one sentence; empty: balanced."""
        return tuple(self._sql_problems()) + tuple(self._slot_problems())

    @property
    def balanced(self) -> bool:
        return not self.problems()

    def _sql_problems(self) -> list[str]:
        sql = self.sql
        capacity = sql.initial + sql.adjusted
        checks = [
            (sql.available < 0, f"I1: available in SQL is negative: {sql.available}"),
            (
                capacity != sql.available + self.live_sql,
                f"I1: {capacity} units in SQL, but {sql.available} available + {self.live_sql} held",
            ),
            (sql.moved != sql.available, f"I1: stock movements sum to {sql.moved}, available is {sql.available}"),
            (self.live_sql > capacity, f"I2: {self.live_sql} live units in SQL of {capacity}"),
            (sql.buyers_over_limit > 0, f"I3: {sql.buyers_over_limit} buyers over the limit"),
            (
                sql.buyers_units != self.live_sql,
                f"I3: buyer counters sum to {sql.buyers_units}, orders hold {self.live_sql}",
            ),
            (
                sql.payments_succeeded != sql.payments_applied + sql.payments_waiting + sql.refunds,
                f"I6: {sql.payments_succeeded} payments, but {sql.payments_applied} applied + "
                f"{sql.payments_waiting} waiting + {sql.refunds} refunds",
            ),
            (sql.duplicate_refunds > 0, f"I6: {sql.duplicate_refunds} payments with more than one refund"),
        ]
        return [problem for broken, problem in checks if broken]

    def _slot_problems(self) -> list[str]:
        problems = []
        for segment, slot in self.slots.items():
            if slot is None:
                problems.append(f"I1: segment {segment} cannot be read")
            else:
                problems += [f"segment {segment}: {problem}" for problem in _slot_checks(slot)]
        problems += [
            f"I5: segment {segment} has had a batch without orders for {age_s} s"
            for segment, age_s in sorted(self.overdue_s.items())
        ]
        return problems + self._across()

    @property
    def quiet(self) -> bool:
        """Nothing is under way, so that everything could be compared."""
        return not self.under_way()

    def under_way(self) -> tuple[str, ...]:
        """What is not at its end yet, a sentence each."""
        return tuple(self._under_way())

    def _under_way(self) -> Iterator[str]:
        slots = [slot for slot in self.slots.values() if slot is not None]
        counts = [
            (sum(slot.queued for slot in slots), "unit is queued", "units are queued"),
            (
                sum(slot.undelivered_batches for slot in slots),
                "batch is decided and has no orders yet",
                "batches are decided and have no orders yet",
            ),
            (self.sql.owed, "effect is owed to Redis", "effects are owed to Redis"),
            (self.sql.payments_waiting, "payment waits for its order", "payments wait for their orders"),
            (self.sql.adjusting, "adjustment is not finished", "adjustments are not finished"),
        ]
        for count, one, many in counts:
            if count:
                yield f"{count:,} {one if count == 1 else many}"
        if self.wanted is not None and self.wanted != self.authority:
            yield f"the sale is on its way from {self.authority} to {self.wanted}"

    def _across(self) -> list[str]:
        """Both stores together. They are read one after the other, so only a quiet sale can be compared to the unit."""
        slots = [slot for slot in self.slots.values() if slot is not None]
        if not slots or len(slots) < len(self.slots) or not self.quiet:
            return []
        available = sum(slot.available for slot in slots)
        if available == self.sql.available:
            return []
        return [f"I1: SQL has {self.sql.available} available, Redis {available}, and nothing is under way"]


def _slot_checks(slot: SlotCount) -> list[str]:
    checks = [
        (slot.available < 0 or slot.held < 0, "I1: negative"),
        (
            slot.granted != slot.available + slot.held,
            f"I1: granted {slot.granted}, but {slot.available} available + {slot.held} held",
        ),
        (
            slot.held != slot.queued + slot.ordered,
            f"I1: held {slot.held}, but {slot.queued} queued + {slot.ordered} ordered",
        ),
        (slot.buyers_units != slot.held, f"I3: buyers' units {slot.buyers_units}, held {slot.held}"),
    ]
    return [problem for broken, problem in checks if broken]
