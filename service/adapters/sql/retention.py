"""Deletes what nobody asks for any more, a bounded piece at a time."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Select, delete, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables, transactions
from service.adapters.sql.database import Database
from service.adapters.sql.statements import IN_THIS_ORDER, chunks
from service.domain.sale import SaleStatus


class SqlRetention:
    """Implements the port's Retention."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def forget_sent_events(self, created_before_ms: int, limit: int) -> int:
        """Rows are made in the order of time, so the oldest say whether there is anything to do."""
        row = tables.outbox.c
        oldest = select(row.seq, row.created_at_ms).where(row.sent == true()).order_by(row.seq).limit(limit).subquery()
        return await self._forget(row.seq, select(oldest.c.seq).where(oldest.c.created_at_ms < created_before_ms))

    async def forget_decisions(self, settled_before_ms: int, limit: int) -> int:
        row, sale = tables.batch_decisions.c, tables.sales.c
        over = or_(sale.older_deadline_ms.is_(None), sale.older_deadline_ms < settled_before_ms)
        statement = (
            select(row.batch_id)
            .prefix_with(IN_THIS_ORDER, dialect="mysql")
            .select_from(tables.sales.join(tables.batch_decisions, sale.id == row.sale_id))
            .where(sale.status == str(SaleStatus.SETTLED), sale.status_at_ms < settled_before_ms, over)
            .limit(limit)
        )
        return await self._forget(row.batch_id, statement)

    async def _forget(self, key: Column[Any], these: Select[Any]) -> int:
        """Read first, delete by key: MySQL then locks these rows and no others."""
        found = [row[0] for row in await transactions.read_rows(self._database, these)]

        async def work(connection: AsyncConnection) -> None:
            for chunk in chunks(found):
                await connection.execute(delete(key.table).where(key.in_(chunk)))

        if found:
            await transactions.write(self._database, work)
        return len(found)
