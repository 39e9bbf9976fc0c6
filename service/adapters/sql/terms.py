"""Every SQL term of the ledger. The caller's transaction is one snapshot."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.domain.errors import NotFound
from service.domain.ids import SaleId
from service.domain.ledger import SqlTerms
from service.domain.payment import PaymentOutcome, PaymentStatus
from service.domain.reservation import Status

OF_SALE = "FORCE INDEX ({})"
"""MariaDB may group by reading all orders in the order of their states, or join by reading all payments."""
TIMEOUT_S = 30.0
"""A sale of a million orders takes some seconds: an ordinary read's deadline would refuse its ledger for ever."""


async def of_sale(connection: AsyncConnection, sale_id: SaleId) -> SqlTerms:
    sale = tables.sales.c
    statement = select(sale.initial, sale.adjusted, sale.available, sale.epoch, sale.limit_per_buyer).where(
        sale.id == sale_id
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise NotFound("sale", sale_id)
    held = await _held(connection, sale_id)
    counters = await _buyer_counters(connection, sale_id, row.limit_per_buyer)
    money = await _money(connection, sale_id)
    return SqlTerms(
        initial=row.initial,
        adjusted=row.adjusted,
        available=row.available,
        awaiting_payment=held.get(Status.AWAITING_PAYMENT, 0),
        paid=held.get(Status.PAID, 0),
        refunded_kept=held.get(Status.REFUNDED, 0),
        under_review=held.get(Status.UNDER_REVIEW, 0),
        moved=await _moved(connection, sale_id),
        **counters,
        owed=await _owed(connection, sale_id, row.epoch),
        adjusting=await _adjusting(connection, sale_id),
        **money,
    )


async def _held(connection: AsyncConnection, sale_id: SaleId) -> dict[Status, int]:
    """Units by status; what was restocked is nobody's any more."""
    row = tables.orders.c
    statement = (
        select(row.status, func.sum(row.quantity))
        .with_hint(tables.orders, OF_SALE.format("orders_by_buyer"), dialect_name="mysql")
        .where(row.sale_id == sale_id, row.restocked == false())
        .group_by(row.status)
    )
    return {Status(status): int(units) for status, units in await connection.execute(statement)}


async def _moved(connection: AsyncConnection, sale_id: SaleId) -> int:
    row = tables.stock_movements.c
    return await _number(connection, select(func.sum(row.delta)).where(row.sale_id == sale_id))


async def _buyer_counters(connection: AsyncConnection, sale_id: SaleId, limit: int) -> dict[str, int]:
    row = tables.buyer_counters.c
    mine = row.sale_id == sale_id
    over = select(func.count()).select_from(tables.buyer_counters).where(mine, row.units > limit)
    return {
        "buyers_units": await _number(connection, select(func.sum(row.units)).where(mine)),
        "buyers_over_limit": await _number(connection, over),
    }


async def _owed(connection: AsyncConnection, sale_id: SaleId, epoch: int) -> int:
    """Only what this epoch owes: a load settles what older ones did."""
    row = tables.owed_effects.c
    statement = select(func.count()).select_from(tables.owed_effects)
    return await _number(connection, statement.where(row.sale_id == sale_id, row.epoch == epoch))


async def _adjusting(connection: AsyncConnection, sale_id: SaleId) -> int:
    row = tables.adjustments.c
    unfinished = or_(row.applied == false(), row.owed_epoch.is_not(None))
    return await _number(connection, _count(row.id, row.sale_id == sale_id, unfinished))


async def _money(connection: AsyncConnection, sale_id: SaleId) -> dict[str, int]:
    """A payment counts as applied only where an order says that it was paid by it."""
    row, order, refund = tables.payments.c, tables.orders.c, tables.refunds.c
    succeeded = and_(row.sale_id == sale_id, row.status == str(PaymentStatus.SUCCEEDED))
    applied = (
        select(func.count())
        .with_hint(tables.payments, OF_SALE.format("payments_by_sale"), dialect_name="mysql")
        .select_from(tables.payments.join(tables.orders, order.id == row.reservation_id))
        .where(succeeded, row.outcome == str(PaymentOutcome.APPLIED), order.paid_by == row.id)
    )
    doubled = (
        select(refund.payment_id)
        .where(refund.sale_id == sale_id)
        .group_by(refund.payment_id)
        .having(func.count() > 1)
        .subquery()
    )
    return {
        "payments_succeeded": await _number(connection, _count(row.id, succeeded)),
        "payments_applied": await _number(connection, applied),
        "payments_waiting": await _number(
            connection, _count(row.id, succeeded, row.outcome == str(PaymentOutcome.WAITING))
        ),
        "refunds": await _number(connection, _count(refund.payment_id, refund.sale_id == sale_id)),
        "duplicate_refunds": await _number(connection, select(func.count()).select_from(doubled)),
    }


def _count(column: ColumnElement[Any], *where: ColumnElement[bool]) -> Select[Any]:
    return select(func.count(column)).where(*where)


async def _number(connection: AsyncConnection, statement: Select[Any]) -> int:
    """SUM is a Decimal on MySQL, and NULL over nothing."""
    return int((await connection.execute(statement)).scalar() or 0)
