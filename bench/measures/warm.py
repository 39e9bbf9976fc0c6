"""Before the first measurement: what everything cold would cost is no part of it."""

from __future__ import annotations

from dataclasses import replace

from bench.measures.afterwards import reserved
from bench.measures.desk import Desk
from bench.measures.others import half_sends
from bench.measures.selling import drain
from bench.stand.dropgate import Stand
from bench.stand.sale import BenchSale, end_sales
from bench.subjects import Subject

HALVES_S = 8.0
"""Of half messages: the JVMs of the broker and the proxy compile while they serve; after 2 s they were half as fast as
after 10."""
CALLERS = 16
ORDERS = 5_000
"""Reserved, and drained: tables and indexes are in the database's memory, connections have been made."""


async def warmed(desk: Desk, stand: Stand, half_send: Subject | None, *, on_sql: bool) -> None:
    """Broker, Redis and database have done some work of each kind; a quarter of a minute a stand, mostly processes that
    start. Nothing of it is measured, and its sale has ended."""
    if half_send is not None:
        await half_sends(replace(desk, seconds=HALVES_S), stand, half_send, CALLERS)
    async with stand.part("keeper"):
        sale = await BenchSale.opened(desk.engine, stand, ORDERS, on_sql=on_sql)
        told = await reserved(desk, sale, ORDERS)
        if not on_sql:
            await drain(desk, sale, len(told))
        await end_sales(desk.engine, stand)
