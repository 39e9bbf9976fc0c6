"""What the loader reads at one instant, under the sale's row lock (design §3.3)."""

from __future__ import annotations

from sqlalchemy import and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.rows import record_of_row
from service.adapters.sql.sale_rows import lock_sale
from service.domain.ids import BuyerId, SaleId
from service.domain.sale import Authority
from service.domain.stock import Record, RecordState
from service.ports.orders import Snapshot

ROWS_AT_A_TIME = 1_000
"""Rows that come from the database in one piece: a sale may have hundreds of thousands."""


async def take(connection: AsyncConnection, sale_id: SaleId, epoch: int) -> Snapshot | None:
    """The lock comes first. On MySQL (REPEATABLE READ) the instant is that of the first read after it."""
    sale = await lock_sale(connection, sale_id)
    if sale is None or (sale.authority, sale.epoch) != (Authority.LOADING, epoch):
        return None
    await _settle(connection, sale_id, epoch)
    records = await _records(connection, sale_id)
    held = sum(record.quantity for record in records if record.state is RecordState.ORDERED)
    units = await _buyer_units(connection, sale_id)
    return Snapshot(sale=sale, available=sale.available, held=held, buyer_units=units, records=records)


async def _settle(connection: AsyncConnection, sale_id: SaleId, epoch: int) -> None:
    """What is owed to Redis up to this epoch is in the snapshot: as stock, or as an id that ended. Not applied again.

    This epoch's too: what was committed while `loading`, before this lock was taken, owes in it.
    """
    effect, adjustment = tables.owed_effects.c, tables.adjustments.c
    effects = and_(effect.sale_id == sale_id, effect.epoch <= epoch)
    increases = and_(adjustment.sale_id == sale_id, adjustment.owed_epoch <= epoch)
    await connection.execute(delete(tables.owed_effects).where(effects))
    await connection.execute(update(tables.adjustments).where(increases).values(owed_epoch=None))


async def _records(connection: AsyncConnection, sale_id: SaleId) -> list[Record]:
    row = tables.orders.c
    statement = select(
        row.id,
        row.status,
        row.restocked,
        row.batch_id,
        row.buyer_id,
        row.quantity,
        row.fingerprint,
        row.created_at_ms,
    ).where(row.sale_id == sale_id)
    found: list[Record] = []
    streamed = await connection.stream(statement)
    async for rows in streamed.partitions(ROWS_AT_A_TIME):
        found += [record_of_row(row) for row in rows]
    return found


async def _buyer_units(connection: AsyncConnection, sale_id: SaleId) -> dict[BuyerId, int]:
    row = tables.buyer_counters.c
    statement = select(row.buyer_id, row.units).where(row.sale_id == sale_id, row.units > 0)
    return {BuyerId(buyer): units for buyer, units in await connection.execute(statement)}
