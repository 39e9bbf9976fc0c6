"""A sale of the bench on a real database: it ends before the next one begins, and then costs nothing any more."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.command import NAMED_FOR_IT, only_ours
from bench.measures.desk import Desk
from bench.measures.memory import redis_bytes
from bench.measures.warm import ORDERS, warmed
from bench.stand import sale as sales
from bench.stand.child import BenchFailed
from bench.stand.dropgate import Stand
from bench.stand.sale import PREFIX, BenchSale, end_sales
from service.adapters.redis import keys
from service.cli.output import Failure
from service.domain.ids import SaleId
from service.domain.stock import Slot
from tests.servers.mariadb import DATABASE, MariaDB
from tests.servers.redis7 import Redis

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def stand(mariadb: MariaDB, redis7: Redis, tmp_path: Path) -> Stand:
    """Without a keeper: sales of `--on-sql` need none."""
    urls = {"DROPGATE_DATABASE_URL": mariadb.new_database(), "DROPGATE_REDIS_URL": redis7.url}
    environment = {**os.environ, **urls, "PYTHONPATH": str(ROOT), "DROPGATE_HOME": str(tmp_path / "home")}
    made = Stand(name="test", python=sys.executable, environment=environment, folder=tmp_path)
    await made.command("migrate")
    return made


@pytest.fixture
async def engine(stand: Stand) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(stand.environment["DROPGATE_DATABASE_URL"].replace("mysql:", "mysql+aiomysql:"))
    yield made
    await made.dispose()


async def test_a_sale_is_settled_before_the_next_one_is_opened_and_its_events_are_nobodys(
    stand: Stand, engine: AsyncEngine
) -> None:
    first = await BenchSale.opened(engine, stand, 10, on_sql=True)
    await _event(engine, first)
    second = await BenchSale.opened(engine, stand, 10, on_sql=True)
    assert await _statuses(engine) == {first.id: "settled", second.id: "open"}
    assert await _number(engine, "SELECT COUNT(*) FROM outbox WHERE sent = 0") == 0
    await end_sales(engine, stand)
    assert await _statuses(engine) == {first.id: "settled", second.id: "settled"}


async def test_a_sale_that_was_closed_already_is_settled_and_one_of_another_run_is_left_alone(
    stand: Stand, engine: AsyncEngine
) -> None:
    ours = await BenchSale.opened(engine, stand, 10, on_sql=True)
    await stand.command("sale", "close", ours.id)
    other = f"{PREFIX}other-1"
    await stand.command("sale", "create", other, "--sku", "vinyl", "--stock", "10", "--price", "1", "--on-sql")
    await stand.command("sale", "open", other, "--warm")
    await end_sales(engine, stand)
    assert await _statuses(engine) == {ours.id: "settled", other: "open"}


async def test_a_sale_without_a_key_in_redis_is_not_one_that_takes_nothing(redis7: Redis) -> None:
    slot = Slot(sale_id=SaleId("bench-1"), segment=0, epoch=1)
    with pytest.raises(BenchFailed, match="bench-1 has no key in Redis"):
        await redis_bytes(redis7.url, slot.sale_id)
    redis7.call("SET", "dg:{bench-10:0}:1:meta", "another sale's")
    with pytest.raises(BenchFailed, match="bench-1 has no key in Redis"):
        await redis_bytes(redis7.url, slot.sale_id)
    redis7.call("SET", keys.key(slot, keys.META), "a hundred bytes" * 7)
    assert await redis_bytes(redis7.url, slot.sale_id) > 100


async def test_a_sale_that_no_keeper_takes_out_of_redis_is_said(
    stand: Stand, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sales, "ENDED_S", 0.5)
    await BenchSale.opened(engine, stand, 10, on_sql=True)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE sales SET authority = 'redis'"))
    with pytest.raises(BenchFailed, match="is the keeper running"):
        await end_sales(engine, stand)


async def test_a_stand_is_warmed_up_with_orders_that_are_gone_before_the_first_measurement(
    stand: Stand, engine: AsyncEngine
) -> None:
    await stand.command("topics", "create")
    desk = Desk(environment=stand.environment, engine=engine, folder=stand.folder, warm_s=0.0, seconds=1.0)
    await warmed(desk, stand, None, on_sql=True)
    assert await _number(engine, "SELECT COUNT(*) FROM orders") == ORDERS
    assert set((await _statuses(engine)).values()) == {"settled"}
    assert await _number(engine, "SELECT COUNT(*) FROM outbox WHERE sent = 0") == 0


# --- where a bench may begin ------------------------------------------------------------------------------------------


async def test_an_empty_database_that_may_be_a_shops_is_refused_unless_the_operator_says_otherwise(
    engine: AsyncEngine,
) -> None:
    with pytest.raises(Failure, match=r"(?s)has no sales.*dropgate_bench.*--here"):
        await only_ours(engine, here=False)
    await only_ours(engine, here=True)


async def test_a_database_in_which_the_bench_has_been_needs_no_word_and_one_with_other_sales_has_none(
    stand: Stand, engine: AsyncEngine
) -> None:
    rules = ("--sku", "vinyl", "--stock", "10", "--price", "1", "--on-sql")
    await stand.command("sale", "create", f"{PREFIX}1", *rules)
    await only_ours(engine, here=False)
    await stand.command("sale", "create", "vinyl", *rules)
    with pytest.raises(Failure, match="sales that the bench did not make"):
        await only_ours(engine, here=True)


def test_the_servers_of_make_servers_are_named_for_it() -> None:
    assert NAMED_FOR_IT.search(DATABASE)


@pytest.mark.parametrize("name", ["dropgate_bench", "shop_tests", "test", "Bench2"])
async def test_a_database_that_is_named_for_it_needs_no_word_while_it_is_empty(mariadb: MariaDB, name: str) -> None:
    mariadb.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
    async with _to(mariadb, name) as engine:
        await only_ours(engine, here=False)


@pytest.mark.parametrize("name", ["contest", "latest", "workbench", "testimonials"])
async def test_a_word_that_only_begins_or_ends_like_it_says_nothing(mariadb: MariaDB, name: str) -> None:
    mariadb.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
    async with _to(mariadb, name) as engine:
        with pytest.raises(Failure, match=name):
            await only_ours(engine, here=False)


@asynccontextmanager
async def _to(mariadb: MariaDB, database: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(mariadb.url_of(database).replace("mysql:", "mysql+aiomysql:"))
    yield made
    await made.dispose()


async def _event(engine: AsyncEngine, sale: BenchSale) -> None:
    columns = "event_id, type, sale_id, reservation_id, body, created_at_ms, sent"
    async with engine.begin() as connection:
        await connection.execute(
            text(f"INSERT INTO outbox ({columns}) VALUES ('e', 'order.created', :id, 'r', '{{}}', 0, 0)"),
            {"id": sale.id},
        )


async def _statuses(engine: AsyncEngine) -> dict[str, str]:
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT CAST(id AS CHAR), CAST(status AS CHAR) FROM sales"))
        return {str(id_): str(status) for id_, status in rows}


async def _number(engine: AsyncEngine, query: str) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text(query))).scalar_one())
