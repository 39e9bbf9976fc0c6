"""What the loader reads at one instant, under the sale's row lock (design §3.3)."""

from __future__ import annotations

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.rows import record_of_row
from service.adapters.sql.sale_rows import lock_sale
from service.adapters.sql.statements import chunks
from service.domain.ids import SaleId
from service.domain.sale import Authority
from service.domain.stock import Record
from service.ports.orders import Snapshot

TIMEOUT_S = 120.0
"""Reading 200,000 orders takes seconds, a million half a minute: an ordinary transaction's deadline would cut off every
attempt alike, and the sale would never be loaded. Whoever waits for the row meanwhile gives up by its own deadline, and
is answered 503, as all of a sale that is loading."""
ROWS_AT_A_TIME = 1_000
"""Rows that come from the database in one piece: a sale may have hundreds of thousands."""


async def take(connection: AsyncConnection, sale_id: SaleId, epoch: int) -> Snapshot | None:
    """The lock comes first. On MySQL (REPEATABLE READ) the instant is that of the first read after it."""
    sale = await lock_sale(connection, sale_id)
    if sale is None or (sale.authority, sale.epoch) != (Authority.LOADING, epoch):
        return None
    records = await _records(connection, sale_id)
    await _settle(connection, sale_id, epoch)
    return Snapshot(available=sale.available, records=records)


async def _settle(connection: AsyncConnection, sale_id: SaleId, epoch: int) -> None:
    """What is owed to Redis up to this epoch is in the snapshot: as stock, or as an id that ended. Not applied again.

    This epoch's too: what was committed while `loading`, before this lock was taken, owes in it. Read first, changed
    by key, and last: a range that REPEATABLE READ changes is locked with the gaps around it, and other sales would
    wait for as long as the reading takes. Nothing comes to be owed meanwhile: that takes this sale's lock.
    """
    effect, adjustment = tables.owed_effects.c, tables.adjustments.c
    owed = select(effect.reservation_id).where(effect.sale_id == sale_id, effect.epoch <= epoch)
    for chunk in chunks((await connection.execute(owed)).scalars().all()):
        await connection.execute(delete(tables.owed_effects).where(effect.reservation_id.in_(chunk)))
    increases = select(adjustment.id).where(adjustment.sale_id == sale_id, adjustment.owed_epoch <= epoch)
    for chunk in chunks((await connection.execute(increases)).scalars().all()):
        await connection.execute(update(tables.adjustments).where(adjustment.id.in_(chunk)).values(owed_epoch=None))


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
