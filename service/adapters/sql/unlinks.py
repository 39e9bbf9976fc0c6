"""What is owed to Redis of ended epochs: that their keys go (design §3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables, transactions
from service.adapters.sql.database import Database
from service.adapters.sql.statements import BY_KEY
from service.domain.ids import SaleId
from service.ports.orders import OwedUnlink


async def owed(database: Database, due_before_ms: int, limit: int) -> Sequence[OwedUnlink]:
    row = tables.sale_epochs.c
    statement = (
        select(tables.sale_epochs)
        .where(row.unlink_at_ms <= due_before_ms)
        .order_by(row.unlink_at_ms, row.sale_id, row.epoch)
        .limit(limit)
    )
    return [
        OwedUnlink(
            sale_id=SaleId(found.sale_id),
            epoch=found.epoch,
            segments=found.segments,
            ended_at_ms=found.ended_at_ms,
            due_at_ms=found.unlink_at_ms,
        )
        for found in await transactions.read_rows(database, statement)
    ]


async def done(database: Database, it: OwedUnlink, again_at_ms: int | None) -> None:
    row = tables.sale_epochs.c
    as_seen = (row.sale_id == it.sale_id, row.epoch == it.epoch, row.unlink_at_ms == it.due_at_ms)
    await _update(database, as_seen, again_at_ms)


async def owe(database: Database, sale_id: SaleId, epoch: int, at_ms: int) -> None:
    row = tables.sale_epochs.c
    looked_at = or_(row.unlink_at_ms.is_(None), row.unlink_at_ms > row.ended_at_ms)
    this = (row.sale_id == sale_id, row.epoch == epoch, looked_at)
    await _update(database, this, at_ms)


async def _update(database: Database, where: Sequence[ColumnElement[bool]], at_ms: int | None) -> None:
    statement = (
        update(tables.sale_epochs).with_hint(BY_KEY, dialect_name="mysql").where(*where).values(unlink_at_ms=at_ms)
    )

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(statement)

    await transactions.write(database, work)
