"""Floors without HTTP, in a closed loop: one EVALSHA a call, and orders with their outbox rows by multi-row INSERT.
`python -m bench.floors.alone redis|insert CLIENTS SECONDS`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import redis.asyncio
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from bench.figures import Figure, Measure, latency_of
from bench.floors.take import TAKE
from bench.subjects import Subject

ROWS = 128
"""A full batch."""
TABLES = (
    "CREATE TABLE bench_raw_orders (id VARBINARY(80) PRIMARY KEY, sale_id VARBINARY(48) NOT NULL, buyer_id"
    " VARBINARY(128) NOT NULL, status VARCHAR(32) NOT NULL, created_at_ms BIGINT NOT NULL, body VARCHAR(500) NOT NULL,"
    " KEY by_sale (sale_id, status, created_at_ms)) ENGINE=InnoDB",
    "CREATE TABLE bench_raw_outbox (seq BIGINT AUTO_INCREMENT PRIMARY KEY, event_id VARBINARY(80) NOT NULL UNIQUE,"
    " body VARCHAR(1000) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE bench_raw_stock (id INT PRIMARY KEY, available BIGINT NOT NULL) ENGINE=InnoDB",
)
NAMES = ("bench_raw_orders", "bench_raw_outbox", "bench_raw_stock")
BODY = "x" * 400
"""About what an event of ours has."""

Call = Callable[[int], Awaitable[int]]
"""With a number that no other call has; how many things it did."""


async def _closed_loop(call: Call, clients: int, seconds: float) -> tuple[int, float, list[float]]:
    latencies: list[float] = []
    done, numbers, began_s = 0, iter(range(1 << 40)), time.monotonic()

    async def client() -> None:
        nonlocal done
        while (asked_s := time.monotonic()) < began_s + seconds:
            did = await call(next(numbers))
            done += did
            latencies.append(time.monotonic() - asked_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    return done, time.monotonic() - began_s, latencies


async def redis_alone(clients: int, seconds: float) -> Figure:
    pool = redis.asyncio.BlockingConnectionPool.from_url(os.environ["DROPGATE_REDIS_URL"], max_connections=clients)
    client = redis.asyncio.Redis(connection_pool=pool)
    sha = await client.script_load(TAKE)
    await client.delete("bench:alone:taken")
    await client.hset("bench:alone", "available", "1000000000")

    async def take(number: int) -> int:
        await client.evalsha(sha, 2, "bench:alone", "bench:alone:taken", 1, f"key-{number}")
        return 1

    done, took_s, latencies = await _closed_loop(take, clients, seconds)
    await client.unlink("bench:alone", "bench:alone:taken")
    await client.aclose()
    return _figure(Subject.REDIS_ALONE, clients, "requests", (done, took_s, latencies))


async def raw_insert(clients: int, seconds: float) -> Figure:
    """ROWS orders, their outbox rows and one stock UPDATE a transaction: what is in no way ours."""
    engine = create_async_engine(os.environ["DROPGATE_DATABASE_URL"], pool_size=clients, max_overflow=0)
    async with engine.begin() as connection:
        for name in NAMES:
            await connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        for table in TABLES:
            await connection.execute(text(table))
        await connection.execute(text("INSERT INTO bench_raw_stock VALUES (1, 1000000000)"))

    async def insert(number: int) -> int:
        ids = [f"order-{number}-{row}" for row in range(ROWS)]
        orders = ", ".join(f"('{id_}', 'sale', 'buyer-{id_}', 'awaiting_payment', 0, '{BODY}')" for id_ in ids)
        events = ", ".join(f"('event-{id_}', '{BODY}')" for id_ in ids)
        async with engine.begin() as connection:
            await connection.exec_driver_sql(f"INSERT INTO bench_raw_orders VALUES {orders}")
            await connection.exec_driver_sql(f"INSERT INTO bench_raw_outbox (event_id, body) VALUES {events}")
            await connection.execute(text(f"UPDATE bench_raw_stock SET available = available - {ROWS} WHERE id = 1"))
        return ROWS

    measured = await _closed_loop(insert, clients, seconds)
    async with engine.begin() as connection:
        for name in NAMES:
            await connection.execute(text(f"DROP TABLE {name}"))
    await engine.dispose()
    return _figure(Subject.RAW_INSERT, clients, "rows", measured)


def _figure(subject: Subject, clients: int, unit: str, measured: tuple[int, float, list[float]]) -> Figure:
    done, took_s, latencies = measured
    return Figure(
        subject=subject,
        measure=Measure.FLOOR,
        clients=clients,
        unit=unit,
        count=done,
        seconds=took_s,
        latency=latency_of(latencies),
    )


if __name__ == "__main__":
    kinds = {"redis": redis_alone, "insert": raw_insert}
    print(msgspec.json.encode(uvloop.run(kinds[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3])))).decode())
