"""What comes after a reservation: payment, and the end of those that nobody pays."""

from __future__ import annotations

import asyncio
import time

import msgspec
from sqlalchemy import text

from bench.engine.clients import EngineSpec
from bench.figures import Figure, Measure
from bench.load.spec import Pay
from bench.measures.desk import Desk, latency_of_good, note_of, servers_of, usage_of
from bench.measures.selling import SEEN_S, Api, drain, engine_result
from bench.report.facts import Fact, FactName
from bench.stand.child import BenchFailed
from bench.stand.dropgate import Stand
from bench.stand.sale import PRICE, BenchSale

BACKLOG = 40_000
PAYERS = 5_000
UNPAID = 10_000
AT_ONCE = 1_000
"""More than all lanes take: every batch is full."""
WINDOW_S = 30
"""A delay level of RocketMQ's own list, and longer than it takes to make all of the orders."""
EXPIRED_WITHIN_S = 60.0
LOOK_S = 0.1


async def drained(desk: Desk, stand: Stand) -> list[Figure]:
    """BACKLOG reservations in full batches, which one order consumer finds."""
    sale = await BenchSale.opened(desk.engine, stand, BACKLOG)
    told = await reserved(desk, sale, BACKLOG)
    figure = await drain(desk, sale, len(told))
    audit, wrong = await sale.audited(desk.engine, told)
    return [msgspec.structs.replace(figure, audit=audit, note=wrong)]


async def payment(desk: Desk, api: Api, secret: str, clients: int) -> list[Figure]:
    """PAYERS orders, each paid once, over HTTP."""
    sale = await BenchSale.opened(desk.engine, api.stand, PAYERS)
    await asyncio.sleep(SEEN_S)
    told = await reserved(desk, sale, PAYERS)
    await drain(desk, sale, len(told))
    pay = Pay(sale=sale.id, amount=PRICE, currency="EUR", secret=secret)
    spec = desk.spec(api.address, "/v1/payments", "", clients)
    async with desk.watching(api.processes) as watch:
        result = await desk.crowd(msgspec.structs.replace(spec, pay=pay, buyers_max=PAYERS, warm_s=0.0))
    audit, wrong = await sale.audited(desk.engine, told, paid=result.told)
    figure = Figure(
        subject=api.subject,
        measure=Measure.PAYMENT,
        clients=clients,
        unit="orders",
        count=result.answers.get("200", 0),
        seconds=result.seconds,
        latency=latency_of_good(result),
        audit=audit,
        usage=usage_of(watch, result),
        servers=servers_of(watch, result),
        answers=result.answers,
        note=note_of(result, wrong),
    )
    return [figure]


async def expiry(desk: Desk, stand: Stand) -> list[Figure | Fact]:
    """UNPAID orders that nobody pays. Counted from when the first of them is due to when all are cancelled and every
    unit is on sale again, in SQL and in Redis."""
    sale = await BenchSale.opened(desk.engine, stand, UNPAID, window_s=WINDOW_S)
    told = await reserved(desk, sale, UNPAID)
    async with stand.part("timeout") as (it, _):
        await drain(desk, sale, len(told))
        due_ms = await _first_due_ms(desk, sale)
        await asyncio.sleep(max(0.0, due_ms / 1000 - time.time()))
        async with desk.watching({"dropgate timeout": it.process.pid}) as watch:
            took_s = await _until_back(desk, sale, due_ms)
    audit, wrong = await sale.audited(desk.engine, told)
    figure = Figure(
        subject=stand.name,
        measure=Measure.EXPIRY,
        clients=1,
        unit="orders",
        count=UNPAID,
        seconds=took_s,
        audit=audit,
        usage=watch.usage(),
        servers=watch.servers(),
        note=wrong,
    )
    return [figure, Fact(name=FactName.EXPIRED_AFTER, subject=stand.name, value=took_s, unit="s")]


async def reserved(desk: Desk, sale: BenchSale, count: int) -> list[int]:
    """So many buyers have a reservation each, by the quickest way."""
    spec = EngineSpec(sale=sale.id, clients=AT_ONCE, warm_s=0.0, seconds=0.0, buyers_max=count)
    told = (await engine_result(desk, sale.stand, spec)).told
    if len(told) != count:
        raise BenchFailed(f"{sale.id}: {len(told)} of {count} were reserved")
    return told


async def _first_due_ms(desk: Desk, sale: BenchSale) -> int:
    async with desk.engine.connect() as connection:
        query = text("SELECT MIN(expires_at_ms) FROM orders WHERE sale_id = :id")
        return int((await connection.execute(query, {"id": sale.id})).scalar_one())


async def _until_back(desk: Desk, sale: BenchSale, due_ms: int) -> float:
    """Seconds since the first was due. All are cancelled, and what Redis is owed for them is given."""
    query = text(
        "SELECT (SELECT COUNT(*) FROM orders WHERE sale_id = :id AND status <> 'cancelled')"
        " + (SELECT COUNT(*) FROM owed_effects WHERE sale_id = :id)"
    )
    while (since_s := time.time() - due_ms / 1000) < EXPIRED_WITHIN_S:
        async with desk.engine.connect() as connection:
            if int((await connection.execute(query, {"id": sale.id})).scalar_one()) == 0:
                return since_s
        await asyncio.sleep(LOOK_S)
    return EXPIRED_WITHIN_S
