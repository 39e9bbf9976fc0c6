"""Floors without HTTP, in a closed loop: one EVALSHA a call, and orders with their outbox rows by multi-row INSERT.
`python -m bench.floors.alone redis|insert CLIENTS SECONDS`."""

from __future__ import annotations

import os
import sys
import time

import msgspec
import redis.asyncio
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from bench.closed_loop import Timed, closed_loop
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


async def redis_alone(clients: int, seconds: float) -> Timed:
    pool = redis.asyncio.BlockingConnectionPool.from_url(os.environ["DROPGATE_REDIS_URL"], max_connections=clients)
    client = redis.asyncio.Redis(connection_pool=pool)
    sha = await client.script_load(TAKE)
    await client.delete("bench:alone:taken")
    await client.hset("bench:alone", "available", "1000000000")

    async def take(number: int) -> float:
        await client.evalsha(sha, 2, "bench:alone", "bench:alone:taken", 1, f"key-{number}")
        return time.monotonic()

    timed = await closed_loop(take, Subject.REDIS_ALONE, clients=clients, seconds=seconds, unit="requests")
    await client.unlink("bench:alone", "bench:alone:taken")
    await client.aclose()
    return timed


async def raw_insert(clients: int, seconds: float) -> Timed:
    """ROWS orders, their outbox rows and one stock UPDATE a transaction: what is in no way ours."""
    engine = create_async_engine(os.environ["DROPGATE_DATABASE_URL"], pool_size=clients, max_overflow=0)
    async with engine.begin() as connection:
        for name in NAMES:
            await connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        for table in TABLES:
            await connection.execute(text(table))
        await connection.execute(text("INSERT INTO bench_raw_stock VALUES (1, 1000000000)"))

    async def insert(number: int) -> float:
        ids = [f"order-{number}-{row}" for row in range(ROWS)]
        orders = ", ".join(f"('{id_}', 'sale', 'buyer-{id_}', 'awaiting_payment', 0, '{BODY}')" for id_ in ids)
        events = ", ".join(f"('event-{id_}', '{BODY}')" for id_ in ids)
        async with engine.begin() as connection:
            await connection.exec_driver_sql(f"INSERT INTO bench_raw_orders VALUES {orders}")
            await connection.exec_driver_sql(f"INSERT INTO bench_raw_outbox (event_id, body) VALUES {events}")
            await connection.execute(text(f"UPDATE bench_raw_stock SET available = available - {ROWS} WHERE id = 1"))
        return time.monotonic()

    timed = await closed_loop(insert, Subject.RAW_INSERT, clients=clients, seconds=seconds, unit="rows", each=ROWS)
    async with engine.begin() as connection:
        for name in NAMES:
            await connection.execute(text(f"DROP TABLE {name}"))
    await engine.dispose()
    return timed


if __name__ == "__main__":
    kinds = {"redis": redis_alone, "insert": raw_insert}
    print(msgspec.json.encode(uvloop.run(kinds[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3])))).decode())
