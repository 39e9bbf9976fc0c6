"""Reads that both a transaction and the store do: by ids, in lists cut to size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.rows import AnyRow, losers_of_text, order_of_row
from service.adapters.sql.statements import chunks
from service.domain.ids import BatchId, ReservationId
from service.domain.order import Order


async def rows_in(
    connection: AsyncConnection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[object]
) -> list[AnyRow]:
    """The rows whose `column` is among the values; no order is promised."""
    found: list[AnyRow] = []
    for chunk in chunks(values):
        found += (await connection.execute(statement.where(column.in_(chunk)))).all()
    return found


async def orders_by_id(connection: AsyncConnection, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]:
    rows = await rows_in(connection, select(tables.orders), tables.orders.c.id, ids)
    return {ReservationId(row.id): order_of_row(row) for row in rows}


async def losers_by_batch(
    connection: AsyncConnection, ids: Sequence[BatchId]
) -> dict[BatchId, frozenset[ReservationId]]:
    decisions = tables.batch_decisions
    rows = await rows_in(connection, select(decisions), decisions.c.batch_id, ids)
    return {BatchId(row.batch_id): losers_of_text(row.losers) for row in rows}
