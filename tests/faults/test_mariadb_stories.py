"""What is between a process and its MariaDB fails (F52): stale reads, closed connections, a black hole, too many."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from service.adapters.sql import database as sql_database
from service.adapters.sql.database import GIVE_BACK_S, DatabaseOptions, Lane
from service.domain.errors import EpochChanged, StoreUnavailable
from service.domain.ids import SaleId, new_batch_id
from service.ports.orders import SaleTransaction
from tests.fixtures.mariadb_ways import at, connections, in_use
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.sql import NOW, SALE, Stores, claim, decide, id_of, problems, rules, sale_now, sell, stores_on
from tests.fixtures.stage_tools import counted, until
from tests.servers.mariadb import MariaDB

pytestmark = pytest.mark.faults

HURRIED = DatabaseOptions(timeout_s=3.0, transaction_timeout_s=4.0, connect_timeout_s=1.0, pool_max=4)
POOLS = HURRIED.pool_max + HURRIED.read_max + HURRIED.view_max
SLACK_S = 3.0
"""Of a busy machine."""
BACK_WITHIN_S = 10.0


@pytest.fixture
def proxy(mariadb: MariaDB, make_proxy: Callable[[str], TcpProxy]) -> TcpProxy:
    return make_proxy(mariadb.address)


# --- (a) stale reads --------------------------------------------------------------------------------------------------


async def test_a_poll_and_a_check_back_see_what_others_committed_at_once(mysql: Stores, mysql_url: str) -> None:
    """On pooled connections, which have looked before."""
    rival = stores_on(mysql_url)
    await mysql.sales.create(SALE, rules(stock=200), NOW)
    for n in range(100):
        batch, id_ = new_batch_id(), id_of(f"b{n}")
        assert await mysql.orders.order(id_) is None
        assert await mysql.orders.batch_rows(batch) == (frozenset(), None)
        await sell(rival, [claim(f"b{n}", batch_id=batch)])
        assert await mysql.orders.order(id_) is not None
        assert await mysql.orders.batch_rows(batch) == (frozenset({id_}), None)
    await rival.database.close()


# --- (b) connections that the server has closed -----------------------------------------------------------------------


async def test_a_burst_after_the_server_closed_what_was_idle_meets_no_lost_connection(
    mysql_url: str, mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's patience is shorter than the pool's: no recycling helps, only the look at each connection."""
    impatient = sql_database.MYSQL_SESSION.replace("wait_timeout = 30", "wait_timeout = 1", 1)
    assert impatient != sql_database.MYSQL_SESSION
    monkeypatch.setattr(sql_database, "MYSQL_SESSION", impatient)
    stores = stores_on(mysql_url)
    await stores.sales.create(SALE, rules(stock=200), NOW)

    async def burst(first: int) -> None:
        buyers = [f"b{n}" for n in range(first, first + 20)]
        sold = await asyncio.gather(*(sell(stores, [claim(buyer)]) for buyer in buyers))
        assert sum(len(decision.accepted) for decision in sold) == 20
        assert all(await asyncio.gather(*(stores.orders.order(id_of(buyer)) for buyer in buyers)))
        assert len(await stores.sales.sales()) == 1

    for round_ in range(3):
        await burst(20 * round_)
        await until(_closed(mariadb, mysql_url), "the server has closed every connection")
    await burst(60)
    await stores.database.close()


def _closed(mariadb: MariaDB, url: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return not await asyncio.to_thread(connections, mariadb, url)

    return look


async def test_connections_that_a_firewall_forgot_while_they_were_idle_cost_nobody_an_answer(
    mysql_url: str, proxy: TcpProxy
) -> None:
    """Nobody is told that they are dead: the look at one has a fifth of its caller's time, and one is enough."""
    stores = stores_on(at(mysql_url, proxy.address), replace(HURRIED, timeout_s=5.0, transaction_timeout_s=10.0))
    await stores.sales.create(SALE, rules(stock=1_000), NOW)
    for round_ in range(2):
        await _each_lane(stores, f"before-{round_}", HURRIED.pool_max)
        proxy.forget()
        await _each_lane(stores, f"after-{round_}", HURRIED.pool_max)
    await stores.database.close()


# --- (c) a black hole -------------------------------------------------------------------------------------------------


Story = Callable[[], Coroutine[Any, Any, None]]
LOOPS: list[Callable[[Story], None]] = [lambda story: asyncio.run(story()), lambda story: uvloop.run(story())]
on_each_loop = pytest.mark.parametrize("run", LOOPS, ids=["asyncio", "uvloop"])


@on_each_loop
@pytest.mark.parametrize("healed", ["with a reset", "and old connections forgotten"])
def test_callers_leave_a_black_hole_in_time_and_the_pools_come_back(
    run: Callable[[Story], None], healed: str, mysql_url: str, mariadb: MariaDB, proxy: TcpProxy
) -> None:
    async def story() -> None:
        stores = stores_on(at(mysql_url, proxy.address), HURRIED)
        await stores.sales.create(SALE, rules(stock=1_000), NOW)
        await _each_lane(stores, "before", HURRIED.pool_max)
        proxy.swallow()
        await asyncio.gather(*(_leaves_in_time(_call(stores, f"hole-{n}", n)) for n in range(60)))
        assert in_use(stores.database) == dict.fromkeys(Lane, 0)
        if healed == "with a reset":
            proxy.heal()
        else:
            proxy.forget()
        began_s = time.monotonic()
        await until(_works(stores), "it works again", BACK_WITHIN_S)
        assert time.monotonic() - began_s < BACK_WITHIN_S
        await _each_lane(stores, "after", HURRIED.pool_max)
        assert in_use(stores.database) == dict.fromkeys(Lane, 0)
        # those of before, whose end the server has not heard of, and those of now
        assert len(connections(mariadb, mysql_url)) <= 2 * POOLS
        assert await problems(stores) == ()
        await stores.database.close()

    run(story)


async def _leaves_in_time(call: Awaitable[object]) -> None:
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await call
    assert time.monotonic() - began_s < HURRIED.transaction_timeout_s + GIVE_BACK_S + SLACK_S


def _call(stores: Stores, buyer: str, n: int) -> Awaitable[object]:
    """One of each lane in turn."""
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: sell(stores, [claim(buyer)]),
        lambda: stores.orders.order(id_of(buyer)),
        stores.sales.sales,
    ]
    return calls[n % len(calls)]()


async def _each_lane(stores: Stores, name: str, count: int) -> None:
    await asyncio.gather(*(_call(stores, f"{name}-{n}", n) for n in range(3 * count)))


def _works(stores: Stores) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        try:
            await _each_lane(stores, f"look-{time.monotonic()}", 1)
        except StoreUnavailable:
            return False
        return True

    return look


@on_each_loop
def test_a_rollback_that_gets_no_answer_does_not_keep_its_caller(
    run: Callable[[Story], None], mysql_url: str, proxy: TcpProxy
) -> None:
    """The hole opens between two statements: what is left to do is the ROLLBACK."""

    async def story() -> None:
        stores = stores_on(at(mysql_url, proxy.address), HURRIED)
        await stores.sales.create(SALE, rules(), NOW)

        async def cut_off(transaction: SaleTransaction) -> None:
            await decide(transaction, [claim("anna")])
            proxy.swallow()
            raise EpochChanged(SALE, 1, 2)

        began_s = time.monotonic()
        with pytest.raises(EpochChanged):
            await stores.orders.transact([SALE], cut_off)
        assert time.monotonic() - began_s < HURRIED.transaction_timeout_s + GIVE_BACK_S + SLACK_S
        assert in_use(stores.database) == dict.fromkeys(Lane, 0)
        proxy.heal()
        await until(_works(stores), "it works again", BACK_WITHIN_S)
        assert await stores.orders.order(id_of("anna")) is None
        await stores.database.close()

    run(story)


async def test_a_connection_lost_on_its_way_back_changes_nothing_of_what_happened(
    mysql_url: str, proxy: TcpProxy
) -> None:
    """The COMMIT was answered, the caller was cancelled: so it is, whatever becomes of the ROLLBACK behind it."""
    stores = stores_on(at(mysql_url, proxy.address), HURRIED)
    await stores.sales.create(SALE, rules(), NOW)
    proxy.cut_replies(1, of=b"ROLLBACK")
    assert (await sell(stores, [claim("anna")])).accepted
    assert proxy.cut_count == 1

    inside = asyncio.Event()

    async def waits(transaction: SaleTransaction) -> None:
        inside.set()
        await asyncio.Event().wait()

    proxy.cut_replies(1, of=b"ROLLBACK")
    waiting = asyncio.create_task(stores.orders.transact([SALE], waits))
    await inside.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert proxy.cut_count == 2
    assert in_use(stores.database) == dict.fromkeys(Lane, 0)
    await stores.database.close()


async def test_a_server_that_accepts_and_says_nothing_is_given_up_in_the_time_of_a_connect(
    mysql_url: str, proxy: TcpProxy
) -> None:
    proxy.swallow()
    stores = stores_on(at(mysql_url, proxy.address), replace(HURRIED, timeout_s=20.0))
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailable, match="No connection within 1 s"):
        await stores.orders.order(id_of("anna"))
    assert time.monotonic() - began_s < HURRIED.connect_timeout_s + SLACK_S
    await stores.database.close()


# --- too many at once -------------------------------------------------------------------------------------------------


async def test_a_storm_of_callers_some_of_whom_give_up_leaves_nothing_behind(
    database_url: str, request: pytest.FixtureRequest
) -> None:
    """F40: many more than there are connections, a third of them cancelled at any point of their way."""
    stores = stores_on(database_url, HURRIED)
    sales = [SaleId(f"storm-{n}") for n in range(8)]
    for sale_id in sales:
        await stores.sales.create(sale_id, rules(stock=500), NOW)
    for round_ in range(2):
        await _storm(stores, sales, round_)
        assert in_use(stores.database) == dict.fromkeys(Lane, 0)
        assert [counted("dropgate_sql_connections_in_use", lane=lane.name.lower()) for lane in Lane] == [0, 0, 0]
        assert stores.database.turns.idle
    if not stores.database.is_sqlite:
        mariadb = request.getfixturevalue("mariadb")
        assert len(await asyncio.to_thread(connections, mariadb, database_url)) <= POOLS
    for sale_id in sales:
        before = (await sale_now(stores, sale_id)).available
        assert (await sell(stores, [claim("later", sale_id=sale_id)], sale_id=sale_id)).accepted
        assert (await sale_now(stores, sale_id)).available == before - 1
        assert await problems(stores, sale_id) == ()
    await stores.database.close()


async def _storm(stores: Stores, sales: list[SaleId], round_: int) -> None:
    chance = random.Random(round_)

    async def one(n: int) -> None:
        sale_id = sales[n % len(sales)]
        buying = asyncio.create_task(sell(stores, [claim(f"b{round_}-{n}", sale_id=sale_id)], sale_id=sale_id))
        asking = asyncio.create_task(stores.orders.order(id_of(f"b{round_}-{n}", sale_id=sale_id)))
        if n % 3 == 0:
            await asyncio.sleep(chance.uniform(0, 0.5))
            buying.cancel()
            asking.cancel()
        for outcome in await asyncio.gather(buying, asking, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(
                outcome, StoreUnavailable | asyncio.CancelledError
            ), repr(outcome)

    await asyncio.gather(*(one(n) for n in range(200)))
