"""An open transaction behind the locks of its sale rows: the only place where stock moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType

from sqlalchemy import and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.payments import SqlPayments
from service.adapters.sql.queries import losers_by_batch, orders_by_id, rows_in
from service.adapters.sql.rows import (
    adjustment_of_row,
    json_text,
    owed_of_row,
    values_of_event,
    values_of_movement,
    values_of_order,
    values_of_owed,
    values_that_change,
)
from service.adapters.sql.statements import BY_KEY, chunks, insert_or_ignore
from service.domain.errors import InvariantBroken
from service.domain.event import Event
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId
from service.domain.order import Order, Owed
from service.domain.reservation import Reason, Status
from service.domain.sale import Sale
from service.domain.stock import Effect
from service.ports.orders import Adjustment, StockMovement


class SqlSaleTransaction(SqlPayments):
    """Implements the port's SaleTransaction. What breaks a guard raises InvariantBroken and is rolled back."""

    def __init__(self, connection: AsyncConnection, sales: Mapping[SaleId, Sale]) -> None:
        super().__init__(connection)
        self._sales = dict(sales)

    @property
    def sales(self) -> Mapping[SaleId, Sale]:
        return MappingProxyType(self._sales)

    async def orders(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]:
        return await orders_by_id(self._connection, ids)

    async def decisions(self, batch_ids: Sequence[BatchId]) -> dict[BatchId, frozenset[ReservationId]]:
        return await losers_by_batch(self._connection, batch_ids)

    async def buyer_units(self, sale_id: SaleId, buyers: Sequence[BuyerId]) -> dict[BuyerId, int]:
        counters = tables.buyer_counters
        statement = select(counters.c.buyer_id, counters.c.units).where(counters.c.sale_id == sale_id)
        rows = await rows_in(self._connection, statement, counters.c.buyer_id, buyers)
        return {BuyerId(row.buyer_id): row.units for row in rows}

    async def insert_orders(self, orders: Sequence[Order]) -> None:
        if orders:
            await self._connection.execute(insert(tables.orders), [values_of_order(order) for order in orders])

    async def replace_order(self, order: Order, *, expected: Status) -> bool:
        # `version` makes every UPDATE change its row: 0 means a lost race, whether the driver counts found or changed
        row = tables.orders.c
        statement = (
            update(tables.orders)
            .with_hint(BY_KEY, dialect_name="mysql")
            .where(row.id == order.id, row.status == str(expected))
            .values(**values_that_change(order), version=row.version + 1)
        )
        return (await self._connection.execute(statement)).rowcount == 1

    async def cancel_unpaid(
        self, ids: Sequence[ReservationId], reason: Reason, *, due_before_ms: int
    ) -> frozenset[ReservationId]:
        """Two statements a chunk: one locks, and shows which are meant; the other changes just these. A payment, which
        does not lock the sale, comes before both or after them."""
        row, cancelled = tables.orders.c, set[ReservationId]()
        for chunk in chunks(sorted(ids)):
            found = select(row.id, row.status, row.expires_at_ms).with_hint(tables.orders, BY_KEY, "mysql")
            locked = await self._connection.execute(found.where(row.id.in_(chunk)).with_for_update())
            meant = [
                ReservationId(id_)
                for id_, status, expires_at_ms in locked
                if status == str(Status.AWAITING_PAYMENT) and expires_at_ms <= due_before_ms
            ]
            if meant:
                change = update(tables.orders).with_hint(BY_KEY, dialect_name="mysql").where(row.id.in_(meant))
                values = {"status": str(Status.CANCELLED), "reason": str(reason), "version": row.version + 1}
                await self._connection.execute(change.values(values))
                cancelled.update(meant)
        return frozenset(cancelled)

    async def move_stock(self, movements: Sequence[StockMovement]) -> None:
        if not movements:
            return
        deltas: dict[SaleId, int] = defaultdict(int)
        for movement in movements:
            deltas[movement.sale_id] += movement.delta
        for sale_id, delta in sorted(deltas.items()):
            await self._add_available(sale_id, delta)
        await self._connection.execute(
            insert(tables.stock_movements), [values_of_movement(movement) for movement in movements]
        )

    async def _add_available(self, sale_id: SaleId, delta: int) -> None:
        sale = self._locked(sale_id)
        if delta == 0:
            return
        row = tables.sales.c
        statement = (
            update(tables.sales)
            .where(row.id == sale_id, row.available + delta >= 0)
            .values(available=row.available + delta)
        )
        if (await self._connection.execute(statement)).rowcount != 1:
            raise InvariantBroken("available", f"{sale_id}: {sale.available} and {delta:+d} is below 0")
        self._sales[sale_id] = replace(sale, available=sale.available + delta)

    def _locked(self, sale_id: SaleId) -> Sale:
        sale = self._sales.get(sale_id)
        if sale is None:
            raise InvariantBroken("sale lock", f"{sale_id} is not locked by this transaction")
        return sale

    async def add_buyer_units(self, sale_id: SaleId, deltas: Mapping[BuyerId, int], limit: int) -> None:
        self._locked(sale_id)
        new = [{"sale_id": sale_id, "buyer_id": buyer, "units": 0} for buyer, delta in deltas.items() if delta > 0]
        await insert_or_ignore(self._connection, tables.buyer_counters, new)
        buyers: dict[int, list[BuyerId]] = defaultdict(list)
        for buyer, delta in deltas.items():
            buyers[delta].append(buyer)
        buyers.pop(0, None)
        for delta, same in buyers.items():
            for chunk in chunks(same):
                await self._add_same(sale_id, chunk, delta, limit)

    async def _add_same(self, sale_id: SaleId, buyers: Sequence[BuyerId], delta: int, limit: int) -> None:
        row = tables.buyer_counters.c
        after = row.units + delta
        # giving back is right even where the limit was lowered meanwhile
        within = after >= 0 if delta < 0 else after <= limit
        statement = (
            update(tables.buyer_counters)
            .where(row.sale_id == sale_id, row.buyer_id.in_(buyers), within)
            .values(units=after)
        )
        changed = (await self._connection.execute(statement)).rowcount
        if changed != len(buyers):
            why = f"{sale_id}: {len(buyers) - changed} of {len(buyers)} buyers at {delta:+d}, limit {limit}"
            raise InvariantBroken("buyer counter", why)

    async def record_decision(
        self, sale_id: SaleId, batch_id: BatchId, losers: Sequence[ReservationId], at_ms: int
    ) -> None:
        known = await losers_by_batch(self._connection, [batch_id])
        if batch_id in known:
            if known[batch_id] != frozenset(losers):
                raise InvariantBroken("batch decision", f"{batch_id} is decided otherwise already")
            return
        decision = {
            "batch_id": batch_id,
            "sale_id": sale_id,
            "losers": json_text(sorted(losers)),
            "decided_at_ms": at_ms,
        }
        await self._connection.execute(insert(tables.batch_decisions), [decision])

    async def emit(self, events: Sequence[Event]) -> None:
        await insert_or_ignore(self._connection, tables.outbox, [values_of_event(event) for event in events])

    async def owe(self, owed: Sequence[Owed]) -> None:
        for epoch, group in groupby(sorted(owed, key=lambda it: it.epoch), key=lambda it: it.epoch):
            same = list(group)
            await self._forget_outranked(epoch, same)
            await insert_or_ignore(self._connection, tables.owed_effects, [values_of_owed(effect) for effect in same])

    async def _forget_outranked(self, epoch: int, owed: Sequence[Owed]) -> None:
        """Make room: for what is owed in a newer epoch, and for the end of what was only to be kept."""
        row = tables.owed_effects.c
        kept = and_(row.epoch == epoch, row.effect == str(Effect.KEEP))
        for chunk in chunks([effect.reservation_id for effect in owed]):
            outranked = and_(row.reservation_id.in_(chunk), or_(row.epoch < epoch, kept))
            await self._connection.execute(delete(tables.owed_effects).where(outranked))

    async def owed_to(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Owed]:
        owed = tables.owed_effects
        rows = await rows_in(self._connection, select(owed), owed.c.reservation_id, ids)
        return {effect.reservation_id: effect for effect in map(owed_of_row, rows)}

    async def adjustment(self, id: str) -> Adjustment | None:  # the port's word
        statement = select(tables.adjustments).where(tables.adjustments.c.id == id)
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else adjustment_of_row(row)

    async def put_adjustment(self, adjustment: Adjustment, at_ms: int) -> None:
        before = await self.adjustment(adjustment.id)
        values = {
            "delta": adjustment.delta,
            "applied": adjustment.applied,
            "owed_epoch": adjustment.owed_epoch,
            "owed_units": adjustment.owed_units,
            "at_ms": at_ms,
        }
        if before is None:
            new = {"id": adjustment.id, "sale_id": adjustment.sale_id, **values}
            await self._connection.execute(insert(tables.adjustments).values(**new))
        elif before.sale_id != adjustment.sale_id:
            raise InvariantBroken("adjustment", f"{adjustment.id} belongs to {before.sale_id}")
        else:
            mine = tables.adjustments.c.id == adjustment.id
            await self._connection.execute(update(tables.adjustments).where(mine).values(**values))
        change = _applied_units(adjustment) - (0 if before is None else _applied_units(before))
        await self._add_adjusted(adjustment.sale_id, change)

    async def _add_adjusted(self, sale_id: SaleId, delta: int) -> None:
        sale = self._locked(sale_id)
        if delta == 0:
            return
        row = tables.sales.c
        statement = update(tables.sales).where(row.id == sale_id).values(adjusted=row.adjusted + delta)
        await self._connection.execute(statement)
        self._sales[sale_id] = replace(sale, adjusted=sale.adjusted + delta)

    async def audit(
        self, actor: str, act: str, subject: str, *, why: str, detail: Mapping[str, object], at_ms: int
    ) -> None:
        await self._connection.execute(
            insert(tables.audit).values(
                actor=actor, act=act, subject=subject, why=why, detail=json_text(dict(detail)), at_ms=at_ms
            )
        )


def _applied_units(adjustment: Adjustment) -> int:
    return adjustment.delta if adjustment.applied else 0
