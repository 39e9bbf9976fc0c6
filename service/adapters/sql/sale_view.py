"""What a process sees of the sales, twice a second: the live ones as they are, the settled ones remembered.

A shop has ever more settled sales, and its processes look all the time: 1,100 rows cost 50 ms of the event loop, and
every request that comes meanwhile waits for it. One is remembered once it is at rest: it has left Redis, and nothing
moves it any more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables, transactions
from service.adapters.sql.database import Database, Lane
from service.adapters.sql.rows import sale_of_row
from service.domain.ids import SaleId
from service.domain.sale import Authority, Sale, SaleStatus
from service.ports.orders import SALES_READ_MAX

SETTLED_EVERY_S = 10.0
"""Between two looks for settled sales that were never seen alive here, or are there no more: nobody sells by these."""

BY_ID_MAX = 64
"""Sales that are read by their ids: of a longer list MariaDB reads the whole table."""

NEWEST = (tables.sales.c.status_at_ms.desc(), tables.sales.c.id.desc())


class SaleView:
    """Of one process. Of two reads that overlap, the older may forget what the newer found settled: it saw that alive,
    so the next one looks again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._live: frozenset[SaleId] = frozenset()
        self._settled: Mapping[SaleId, Sale] = {}
        self._looked_at_s = -math.inf

    async def sales(self) -> Sequence[Sale]:
        """Two or three statements, each by the index over states. StoreUnavailable."""
        now_s = asyncio.get_running_loop().time()

        async def work(connection: AsyncConnection) -> tuple[Sequence[Sale], Mapping[SaleId, Sale] | None]:
            live = await live_ones(connection)
            if self._live.issubset(sale.id for sale in live) and now_s < self._looked_at_s + SETTLED_EVERY_S:
                return live, None
            return live, await _settled_ones(connection, self._settled)

        live, looked = await transactions.read(self._database, work, lane=Lane.VIEW)
        if looked is not None:
            self._settled = looked
            self._looked_at_s = now_s if all(map(_is_at_rest, looked.values())) else -math.inf
        self._live = frozenset(sale.id for sale in live)
        return in_order(live, self._settled.values())


def in_order(live: Sequence[Sale], settled: Iterable[Sale]) -> Sequence[Sale]:
    """The live ones first. One that is settled between the two statements is in both."""
    seen = {sale.id for sale in live}
    others = [sale for sale in settled if sale.id not in seen]
    return [*live, *others[: max(0, SALES_READ_MAX - len(live))]]


def _is_at_rest(settled: Sale) -> bool:
    return settled.authority is Authority.SQL


async def live_ones(connection: AsyncConnection) -> Sequence[Sale]:
    newest = select(tables.sales).where(is_unsettled()).order_by(*NEWEST).limit(SALES_READ_MAX)
    return [sale_of_row(row) for row in await connection.execute(newest)]


async def _settled_ones(connection: AsyncConnection, known: Mapping[SaleId, Sale]) -> Mapping[SaleId, Sale]:
    """The newest, by id; rows are read of those that are not known at rest."""
    ids = [SaleId(id_) for id_ in (await connection.execute(newest_settled(tables.sales.c.id))).scalars()]
    found = {id_: sale for id_, sale in known.items() if _is_at_rest(sale)}
    unknown = [id_ for id_ in ids if id_ not in found]
    if unknown:
        some = select(tables.sales).where(tables.sales.c.id.in_(unknown))
        rows = await connection.execute(some if len(unknown) <= BY_ID_MAX else newest_settled(tables.sales))
        found |= {sale.id: sale for sale in map(sale_of_row, rows)}
    return {id_: found[id_] for id_ in ids if id_ in found}


def newest_settled(what: FromClause | ColumnElement[str], *, limit: int = SALES_READ_MAX) -> Select[Any]:
    settled = tables.sales.c.status == str(SaleStatus.SETTLED)
    return select(what).where(settled).order_by(*NEWEST).limit(limit)


def is_unsettled() -> ColumnElement[bool]:
    """As a list, which has an index, where `!=` has none."""
    return tables.sales.c.status.in_([str(status) for status in SaleStatus if status is not SaleStatus.SETTLED])
