"""The order store: the order transaction, what is read beside it, and the lists that the keeper works through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TypeVar

from sqlalchemy import and_, delete, false, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables, terms, transactions
from service.adapters.sql.database import Database
from service.adapters.sql.queries import losers_by_batch, orders_by_id, rows_in
from service.adapters.sql.rows import (
    AnyRow,
    adjustment_of_row,
    event_of_row,
    order_of_row,
    owed_of_row,
    payment_of_row,
)
from service.adapters.sql.sale_rows import lock_sales
from service.adapters.sql.sale_transaction import SqlSaleTransaction
from service.adapters.sql.statements import IN_THIS_ORDER, chunks
from service.domain.event import Event
from service.domain.ids import BatchId, BuyerId, EventId, ReservationId, SaleId
from service.domain.ledger import SqlTerms
from service.domain.order import Order, Owed
from service.domain.payment import PaymentOutcome
from service.domain.reservation import FINAL, Status
from service.domain.sale import Authority
from service.domain.stock import Slot
from service.ports.orders import Adjustment, StoredPayment, Work

T = TypeVar("T")


class SqlOrderStore:
    """Implements the port's OrderStore on SQLite, MySQL and MariaDB."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def transact(self, sale_ids: Sequence[SaleId], work: Work[T]) -> T:
        async def locked(connection: AsyncConnection) -> T:
            sales = await lock_sales(connection, sale_ids)
            return await work(SqlSaleTransaction(connection, sales))

        return await transactions.write(self._database, locked, sale_ids=sale_ids)

    async def order(self, id: ReservationId) -> Order | None:  # the port's word
        return (await self.orders([id])).get(id)

    async def orders(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]:
        async def work(connection: AsyncConnection) -> dict[ReservationId, Order]:
            return await orders_by_id(connection, ids)

        return await transactions.read(self._database, work)

    async def live_orders(self, sale_id: SaleId, buyers: Sequence[BuyerId]) -> dict[BuyerId, Order]:
        row = tables.orders.c
        ended = row.status.in_([str(status) for status in FINAL - {Status.REFUNDED}])
        statement = select(tables.orders).where(row.sale_id == sale_id, not_(ended))

        async def work(connection: AsyncConnection) -> list[Order]:
            return [order_of_row(row) for row in await rows_in(connection, statement, row.buyer_id, buyers)]

        live = [order for order in await transactions.read(self._database, work) if order.is_live]
        return {order.buyer_id: order for order in sorted(live, key=lambda it: (it.ordered_at_ms, it.id))}

    async def batch_rows(self, batch_id: BatchId) -> tuple[frozenset[ReservationId], frozenset[ReservationId] | None]:
        row = tables.orders.c

        async def work(
            connection: AsyncConnection,
        ) -> tuple[frozenset[ReservationId], frozenset[ReservationId] | None]:
            decisions = await losers_by_batch(connection, [batch_id])
            made = await connection.execute(select(row.id).where(row.batch_id == batch_id))
            return frozenset(ReservationId(id_) for id_ in made.scalars()), decisions.get(batch_id)

        return await transactions.read(self._database, work)

    async def epoch_deadline_ms(self, sale_id: SaleId, epoch: int) -> int | None:
        ended = tables.sale_epochs.c
        statement = select(ended.deadline_ms).where(ended.sale_id == sale_id, ended.epoch == epoch)
        rows = await self._rows(statement)
        return rows[0].deadline_ms if rows else None

    async def expired(self, before_ms: int, limit: int, *, besides: Collection[SaleId] = ()) -> Sequence[Order]:
        row = tables.orders.c
        statement = (
            select(tables.orders)
            .where(row.status == str(Status.AWAITING_PAYMENT), row.expires_at_ms <= before_ms)
            .where(row.sale_id.not_in(list(besides)))
            .order_by(row.expires_at_ms)
            .limit(limit)
        )
        return [order_of_row(row) for row in await self._rows(statement)]

    async def owed(self, limit: int, *, besides: Collection[Slot] = ()) -> Sequence[Owed]:
        effect, sale = tables.owed_effects.c, tables.sales.c
        left_out = [
            and_(effect.sale_id == slot.sale_id, effect.segment == slot.segment, effect.epoch == slot.epoch)
            for slot in besides
        ]
        statement = (
            select(tables.owed_effects)
            .prefix_with(IN_THIS_ORDER, dialect="mysql")
            .select_from(tables.sales.join(tables.owed_effects, sale.id == effect.sale_id))
            .where(effect.epoch == sale.epoch, sale.authority == str(Authority.REDIS))
            .where(not_(or_(false(), *left_out)))
            .limit(limit)
        )
        return [owed_of_row(row) for row in await self._rows(statement)]

    async def clear_owed(self, owed: Sequence[Owed]) -> None:
        """Each exactly as it was applied: one that was replaced meanwhile, by whatever, stays owed."""
        row = tables.owed_effects.c
        applied: dict[tuple[int, str], list[ReservationId]] = defaultdict(list)
        for it in owed:
            applied[it.epoch, str(it.effect)].append(it.reservation_id)

        async def work(connection: AsyncConnection) -> None:
            for (epoch, effect), ids in applied.items():
                for chunk in chunks(ids):
                    these = row.reservation_id.in_(chunk)
                    statement = delete(tables.owed_effects).where(these, row.epoch == epoch, row.effect == effect)
                    await connection.execute(statement)

        if owed:
            await transactions.write(self._database, work)

    async def unsent_events(self, limit: int) -> Sequence[Event]:
        row = tables.outbox.c
        statement = select(tables.outbox).where(row.sent == false()).order_by(row.seq).limit(limit)
        return [event_of_row(row) for row in await self._rows(statement)]

    async def mark_sent(self, ids: Sequence[EventId]) -> None:
        async def work(connection: AsyncConnection) -> None:
            for chunk in chunks(ids):
                these = tables.outbox.c.event_id.in_(chunk)
                await connection.execute(update(tables.outbox).where(these).values(sent=True))

        if ids:
            await transactions.write(self._database, work)

    async def payments_with_order(self, limit: int) -> Sequence[StoredPayment]:
        row, order = tables.payments.c, tables.orders.c
        return await self._waiting(select(tables.payments).join(tables.orders, order.id == row.reservation_id), limit)

    async def overdue_payments(self, before_ms: int, limit: int) -> Sequence[StoredPayment]:
        row, sale = tables.payments.c, tables.sales.c
        overdue = or_(sale.id.is_(None), row.received_at_ms + sale.queue_deadline_s * 1000 <= before_ms)
        payments = select(tables.payments).outerjoin(tables.sales, sale.id == row.sale_id)
        return await self._waiting(payments.where(overdue), limit)

    async def _waiting(self, payments: transactions.AnySelect, limit: int) -> Sequence[StoredPayment]:
        row = tables.payments.c
        waiting = payments.where(row.outcome == str(PaymentOutcome.WAITING))
        statement = waiting.order_by(row.received_at_ms, row.id).limit(limit)
        return [payment_of_row(row) for row in await self._rows(statement)]

    async def terms(self, sale_id: SaleId) -> SqlTerms:
        async def work(connection: AsyncConnection) -> SqlTerms:
            return await terms.of_sale(connection, sale_id)

        return await transactions.read(self._database, work, one_snapshot=True, timeout_s=terms.TIMEOUT_S)

    async def unfinished_adjustments(self, before_ms: int, limit: int) -> Sequence[Adjustment]:
        """Two statements, each with an index of its own: an OR of the two has none, and adjustments stay for ever."""
        row = tables.adjustments.c
        early = select(tables.adjustments).where(row.at_ms < before_ms).order_by(row.at_ms, row.id).limit(limit)

        async def work(connection: AsyncConnection) -> list[AnyRow]:
            unapplied = await connection.execute(early.where(row.applied == false()))
            owed = await connection.execute(early.where(row.owed_epoch > 0))  # IS NOT NULL has no index on SQLite
            return list({it.id: it for it in [*unapplied, *owed]}.values())

        found = sorted(await transactions.read(self._database, work), key=lambda it: (it.at_ms, it.id))
        return [adjustment_of_row(row) for row in found[:limit]]

    async def postpone_adjustments(self, ids: Sequence[str], at_ms: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            for chunk in chunks(ids):
                these = tables.adjustments.c.id.in_(chunk)
                await connection.execute(update(tables.adjustments).where(these).values(at_ms=at_ms))

        if ids:
            await transactions.write(self._database, work)

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, statement: transactions.AnySelect) -> Sequence[AnyRow]:
        return await transactions.read_rows(self._database, statement)
