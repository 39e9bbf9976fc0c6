"""The ways in which others sell, on a real MariaDB and Redis: which of them keep their word, and how some do not.

A comparator that is wrong by a mistake of ours would make Dropgate look good. So each is held to what it promises, and
those that promise little are shown to fail as they do elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from zlib import crc32

import msgspec
import pymysql
import pytest
from sqlalchemy.exc import DataError

from bench.closed_loop import Timed
from bench.figures import Figure, Measure
from bench.strategies.bare_decr import BareDecr
from bench.strategies.measure import SOLD_OUT, YOURS, audit, timed
from bench.strategies.redis_side import lua
from bench.strategies.redis_then_message import RedisThenMessage
from bench.strategies.registry import STRATEGIES
from bench.strategies.segmented import Segmented
from bench.strategies.sql import BUYER_BYTES
from bench.strategies.strategy import Stores, Strategy
from tests.contract.messaging_stage import KILLED, eventually
from tests.integration.bench_victim import BUYERS, MESSAGES
from tests.servers.mariadb import PASSWORD, USER, MariaDB
from tests.servers.redis7 import Redis

ROOT = Path(__file__).resolve().parents[2]
STOCK, RUSH, CLIENTS = 50, 300, 64
KEEPS_ITS_WORD = sorted(set(STRATEGIES) - {"naive"})
ROUNDS_MAX = 10
"""Of a sale that has never been seen not to oversell in the first."""

WITHIN_S = 30.0
ASKED_S = 60.0
"""Longer than any crowd of these tests."""

Open = Callable[[str], Strategy]


async def measured(strategy: Strategy, *, stock: int, buyers: int, clients: int) -> Figure:
    return (await timed(strategy, stock=stock, buyers=buyers, clients=clients, asked_s=ASKED_S)).figure


@pytest.fixture
def stores(mariadb: MariaDB, redis7: Redis) -> Stores:
    return Stores(redis_url=redis7.url, database_url=mariadb.new_database())


@pytest.fixture
async def opened(stores: Stores) -> AsyncIterator[Open]:
    """Strategies by name, closed at the end."""
    all_opened: list[Strategy] = []

    def open_(name: str) -> Strategy:
        all_opened.append(STRATEGIES[name](stores))
        return all_opened[-1]

    yield open_
    for strategy in all_opened:
        await strategy.close()


# --- what they promise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEEPS_ITS_WORD)
async def test_a_rush_sells_each_unit_once_and_each_buyer_who_was_told_has_an_order(opened: Open, name: str):
    figure = await measured(opened(name), stock=STOCK, buyers=RUSH, clients=CLIENTS)
    assert figure.audit is not None
    assert figure.audit.clean, figure.audit
    assert (figure.audit.told, figure.audit.sold, figure.count) == (STOCK, STOCK, STOCK)
    assert figure.answers == {YOURS: STOCK, SOLD_OUT: RUSH - STOCK}
    assert (figure.measure, figure.unit, figure.subject) == (Measure.ACCEPT, "reservations", name)


@pytest.mark.parametrize("name", KEEPS_ITS_WORD)
async def test_two_processes_that_sell_one_product_sell_it_once(opened: Open, name: str):
    first, second = opened(name), opened(name)
    await first.prepare(STOCK)
    assert first.product is not None
    await second.join(first.product)
    buyers = [f"bert-{number}" for number in range(2 * STOCK)]
    answers = await asyncio.gather(*[[first, second][n % 2].buy(buyer) for n, buyer in enumerate(buyers)])
    await asyncio.gather(first.settle(), second.settle())
    told = {buyer for buyer, yours in zip(buyers, answers, strict=True) if yours}
    found = audit(told, await first.books())
    assert found.clean, found
    assert found.told == found.sold == STOCK


@pytest.mark.parametrize("name", list(STRATEGIES))
async def test_who_comes_to_an_empty_shop_is_refused(opened: Open, name: str):
    figure = await measured(opened(name), stock=0, buyers=RUSH, clients=CLIENTS)
    assert figure.answers == {SOLD_OUT: RUSH}
    assert (figure.measure, figure.unit, figure.count) == (Measure.REJECT, "requests", RUSH)
    assert figure.audit is not None
    assert figure.audit.clean


async def test_eight_buyers_of_one_segment_get_the_units_of_all(opened: Open):
    segmented = opened("segmented")
    await segmented.prepare(Segmented.segments)
    neighbours = (buyer for buyer in map(str, range(10_000)) if crc32(buyer.encode()) % Segmented.segments == 3)
    answers = [await segmented.buy(next(neighbours)) for _ in range(Segmented.segments + 1)]
    assert answers == [True] * Segmented.segments + [False]


@pytest.mark.parametrize("name", ["redis_then_message", "segmented"])
async def test_a_consumer_that_failed_is_heard_of_when_the_sale_is_settled(opened: Open, name: str):
    strategy = opened(name)
    await strategy.prepare(1)
    assert await strategy.buy("anna" * BUYER_BYTES)
    with pytest.raises(DataError, match="Data too long"):
        await strategy.settle()
    assert (await strategy.books()).units_taken == 1


async def test_nobody_frees_a_lock_that_is_anothers_by_now(redis7: Redis):
    redis7.call("SET", "bench:test:lock", "bert")
    assert redis7.call("EVAL", lua("release"), 1, "bench:test:lock", "anna") == 0
    assert redis7.call("GET", "bench:test:lock") == b"bert"
    assert redis7.call("EVAL", lua("release"), 1, "bench:test:lock", "bert") == 1
    assert redis7.call("EXISTS", "bench:test:lock") == 0


async def test_a_closed_strategy_leaves_no_key_in_redis(stores: Stores, redis7: Redis):
    for make in STRATEGIES.values():
        strategy = make(stores)
        await measured(strategy, stock=3, buyers=9, clients=3)
        await strategy.close()
    assert redis7.call("KEYS", "bench:*") == []


# --- how they fail ----------------------------------------------------------------------------------------------------


async def test_read_then_write_oversells(opened: Open):
    naive = opened("naive")
    for _ in range(ROUNDS_MAX):
        found = (await measured(naive, stock=STOCK, buyers=RUSH, clients=CLIENTS)).audit
        assert found is not None
        if found.oversold:
            break
    else:
        pytest.fail(f"{ROUNDS_MAX} sales by read-then-write sold no unit twice")
    assert found.told == found.sold == STOCK + found.oversold


async def test_a_unit_that_comes_back_to_a_counter_below_zero_is_not_sold_again(stores: Stores, redis7: Redis):
    bare = BareDecr(stores)
    await bare.prepare(1)
    assert [await bare.buy(buyer) for buyer in ("anna", "bert", "carl")] == [True, False, False]
    assert bare.product is not None
    (key,) = bare.counters.keys(bare.product)
    redis7.call("INCR", key)
    assert not await bare.buy("dora")
    await bare.close()


async def test_killed_between_deduct_and_order_a_message_without_transaction_loses_orders_and_units(
    stores: Stores, mariadb: MariaDB
):
    """Orders cannot be written for a while, the queue fills up, and the process is killed: those in the queue were told
    "yours" and have no order; those before it hear nothing, and their units are nobody's."""
    strategy = RedisThenMessage(stores)
    await strategy.prepare(STOCK)
    with _orders_locked(stores.database_url, mariadb):
        async with _victim(stores, strategy) as victim:
            told = await _told(victim, MESSAGES)
            await eventually(lambda: _taken(strategy, BUYERS), WITHIN_S)
        told |= await _told(victim)
    await strategy.settle()
    found = audit(told, await strategy.books())
    assert (found.sold, found.oversold) == (0, 0)
    assert found.lost == found.told >= MESSAGES
    assert found.in_doubt == BUYERS > found.lost
    await strategy.close()


@asynccontextmanager
async def _victim(stores: Stores, strategy: RedisThenMessage) -> AsyncIterator[Process]:
    """Killed at the end."""
    assert strategy.product is not None
    its = (str(strategy.product.id), str(strategy.product.stock), stores.redis_url, stores.database_url)
    command = (sys.executable, "-m", "tests.integration.bench_victim", *its)
    victim = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    try:
        yield victim
    finally:
        victim.kill()
        assert await victim.wait() == KILLED


async def _told(victim: Process, count: int | None = None) -> set[str]:
    """The next `count` buyers that it told, or all until it ended."""
    assert victim.stdout is not None
    told: set[str] = set()
    while count is None or len(told) < count:
        line = await victim.stdout.readline()
        if not line:
            assert count is None, f"the victim ended after {len(told)} buyers"
            break
        told.add(line.decode().strip())
    return told


async def _taken(strategy: Strategy, units: int) -> bool:
    return (await strategy.books()).units_taken == units


@contextmanager
def _orders_locked(url: str, mariadb: MariaDB) -> Iterator[None]:
    """Others may read orders, and wait before they write any."""
    database = url.rpartition("/")[2]
    with pymysql.connect(
        host="127.0.0.1", port=mariadb.port, user=USER, password=PASSWORD, database=database
    ) as connection:
        connection.cursor().execute("LOCK TABLES bench_orders READ")
        yield


# --- as the bench runs them -------------------------------------------------------------------------------------------


async def _run(*arguments: str, **urls: str) -> tuple[int, str, str]:
    command = (sys.executable, "-m", "bench.strategies", *arguments)
    child = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, **urls}, stdout=PIPE, stderr=PIPE
    )
    out, err = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


SHORTLY = ("--clients", "16", "--warm", "0.5", "--seconds", "0.5")


@pytest.mark.parametrize("name", ["conditional_update", "segmented", "lock_around_order"])
async def test_a_child_prints_what_it_timed_and_leaves_nothing_on_the_servers(
    stores: Stores, redis7: Redis, mariadb: MariaDB, name: str
):
    urls = {"DROPGATE_REDIS_URL": stores.redis_url, "DROPGATE_DATABASE_URL": stores.database_url}
    code, out, err = await _run(name, *SHORTLY, **urls)
    assert (code, err) == (0, "")
    figure = msgspec.json.decode(out, type=Timed).figure
    assert (figure.subject, figure.clients) == (name, 16)
    assert figure.audit is not None
    assert figure.audit.clean
    assert figure.audit.told >= figure.count > 0
    assert redis7.call("KEYS", "bench:*") == []
    assert mariadb.execute(f"SHOW TABLES IN {stores.database_url.rpartition('/')[2]}") == []


async def test_as_a_child_read_then_write_has_buyers_enough_to_be_seen_overselling(stores: Stores):
    urls = {"DROPGATE_REDIS_URL": stores.redis_url, "DROPGATE_DATABASE_URL": stores.database_url}
    code, out, _ = await _run("naive", *SHORTLY, **urls)
    assert code == 0
    audit_ = msgspec.json.decode(out, type=Timed).figure.audit
    assert audit_ is not None
    assert audit_.oversold > 0


async def test_a_child_without_servers_says_which_url_it_lacks(stores: Stores):
    code, out, err = await _run(
        "naive", *SHORTLY, DROPGATE_REDIS_URL=stores.redis_url, DROPGATE_DATABASE_URL="embedded"
    )
    assert (code, out) == (1, "")
    assert err == "DROPGATE_DATABASE_URL is 'embedded': the strategies need the URL of a server there\n"
