"""The sale's row and its lock: whatever moves stock comes past here first."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.rows import sale_of_row
from service.domain.ids import SaleId
from service.domain.sale import Sale


async def lock_sales(connection: AsyncConnection, ids: Iterable[SaleId]) -> dict[SaleId, Sale]:
    """Lock the rows in ascending order of id, the same for everyone, and return those that exist."""
    found: dict[SaleId, Sale] = {}
    for sale_id in sorted(set(ids)):
        sale = await lock_sale(connection, sale_id)
        if sale is not None:
            found[sale_id] = sale
    return found


async def lock_sale(connection: AsyncConnection, sale_id: SaleId) -> Sale | None:
    """One row by its key: a list of ids might be read by a scan, which locks rows of others in the scan's order.

    SQLite ignores FOR UPDATE: BEGIN IMMEDIATE has locked the whole file already.
    """
    statement = select(tables.sales).where(tables.sales.c.id == sale_id).with_for_update()
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else sale_of_row(row)
