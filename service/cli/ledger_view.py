"""The ledger as rows: every term of I1-I4 and I6, from SQL and from Redis, each with what it must equal.

`Ledger.problems` is the judge; these rows show a person what it weighed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from service.domain.ledger import Ledger, SqlTerms
from service.domain.stock import SlotCount


@dataclass(frozen=True, kw_only=True)
class Row:
    """One equation or bound. `ok` None: it cannot be compared now, because units are under way or a slot is away."""

    invariant: str
    where: str
    what: str
    figures: str
    ok: bool | None

    @property
    def mark(self) -> str:
        return {True: "✓", False: "✗", None: "–"}[self.ok]


def rows_of(ledger: Ledger) -> tuple[Row, ...]:
    """Every row, SQL first, then each slot, then both stores together."""
    slots = [slot for slot in ledger.slots.values() if slot is not None]
    rows = [*_sql_rows(ledger, ledger.sql)]
    for segment, slot in ledger.slots.items():
        rows += _slot_rows(f"Redis {segment}", slot)
    if ledger.slots:
        rows += [_in_doubt(ledger, slots), _both(ledger, slots)]
    return (*rows, *_money(ledger.sql))


def ledger_view(ledger: Ledger) -> dict[str, object]:
    """For machines: every term by its name."""
    return {
        "sale_id": ledger.sale_id,
        "authority": ledger.authority,
        "epoch": ledger.epoch,
        "balanced": ledger.balanced,
        "quiet": ledger.quiet,
        "under_way": list(ledger.under_way()),
        "problems": list(ledger.problems()),
        "sql": asdict(ledger.sql),
        "segments": [
            {"segment": segment, "readable": slot is not None, **({} if slot is None else asdict(slot))}
            for segment, slot in sorted(ledger.slots.items())
        ],
        "checks": [asdict(row) for row in rows_of(ledger)],
    }


def _sql_rows(ledger: Ledger, sql: SqlTerms) -> Iterator[Row]:
    capacity = sql.initial + sql.adjusted
    terms = {
        "available": sql.available,
        "awaiting payment": sql.awaiting_payment,
        "paid": sql.paid,
        "refunded without restock": sql.refunded_kept,
        "under review": sql.under_review,
    }
    yield Row(
        invariant="I1",
        where="SQL",
        what=f"initial {sql.initial:,} + adjusted {sql.adjusted:,} = {' + '.join(terms)}",
        figures=f"{capacity:,} = {' + '.join(f'{value:,}' for value in terms.values())}",
        ok=capacity == sum(terms.values()) and min(terms.values()) >= 0,
    )
    yield _equal("I1", "SQL", "sum of stock movements = available", sql.moved, sql.available)
    yield _at_most("I2", "SQL", "live units ≤ initial + adjusted", ledger.live_sql, capacity)
    yield _equal("I3", "SQL", "buyers' counters = live units", sql.buyers_units, ledger.live_sql)
    yield _equal("I3", "SQL", "buyers over the limit = 0", sql.buyers_over_limit, 0)
    settled = True if sql.owed == 0 else None
    yield Row(invariant="I4", where="SQL", what="effects owed to Redis = 0", figures=f"{sql.owed:,} = 0", ok=settled)


def _slot_rows(where: str, slot: SlotCount | None) -> Iterator[Row]:
    if slot is None:
        yield Row(invariant="I1", where=where, what="every term", figures="cannot be read", ok=False)
        return
    yield Row(
        invariant="I1",
        where=where,
        what="granted = available + held",
        figures=f"{slot.granted:,} = {slot.available:,} + {slot.held:,}",
        ok=slot.granted == slot.available + slot.held and min(slot.available, slot.held) >= 0,
    )
    yield Row(
        invariant="I1",
        where=where,
        what="held = queued + ordered",
        figures=f"{slot.held:,} = {slot.queued:,} + {slot.ordered:,}",
        ok=slot.held == slot.queued + slot.ordered,
    )
    yield _at_most("I2", where, "held ≤ granted", slot.held, slot.granted)
    yield _equal("I3", where, "buyers' units = held", slot.buyers_units, slot.held)


def _in_doubt(ledger: Ledger, slots: list[SlotCount]) -> Row:
    """I5. Within the time that a batch may take it is neither right nor wrong."""
    waiting = sum(slot.undelivered_batches for slot in slots)
    settled = True if waiting == 0 and len(slots) == len(ledger.slots) else None
    return Row(
        invariant="I5",
        where="Redis",
        what="decided batches without orders = 0",
        figures=f"{waiting:,} = 0",
        ok=False if ledger.overdue_s else settled,
    )


def _both(ledger: Ledger, slots: list[SlotCount]) -> Row:
    comparable = ledger.quiet and len(slots) == len(ledger.slots)
    redis = sum(slot.available for slot in slots)
    return Row(
        invariant="I1, I4",
        where="both",
        what="available in SQL = available in Redis",
        figures=f"{ledger.sql.available:,} = {redis:,}",
        ok=(ledger.sql.available == redis) if comparable else None,
    )


def _money(sql: SqlTerms) -> Iterator[Row]:
    ends = sql.payments_applied + sql.payments_waiting + sql.refunds
    yield Row(
        invariant="I6",
        where="SQL",
        what="payments = applied + waiting + refunds",
        figures=f"{sql.payments_succeeded:,} = {sql.payments_applied:,} + {sql.payments_waiting:,} + {sql.refunds:,}",
        ok=sql.payments_succeeded == ends,
    )
    yield _equal("I6", "SQL", "payments with several refunds = 0", sql.duplicate_refunds, 0)


def _equal(invariant: str, where: str, what: str, left: int, right: int) -> Row:
    return Row(invariant=invariant, where=where, what=what, figures=f"{left:,} = {right:,}", ok=left == right)


def _at_most(invariant: str, where: str, what: str, left: int, right: int) -> Row:
    return Row(invariant=invariant, where=where, what=what, figures=f"{left:,} ≤ {right:,}", ok=left <= right)
