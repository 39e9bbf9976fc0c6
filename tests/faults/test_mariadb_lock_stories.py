"""Transactions that are in each other's way at a real MariaDB: run again in one place, counted, and in the end done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import database as sql_database
from service.adapters.sql import snapshot
from service.adapters.sql.database import DatabaseOptions
from service.domain.errors import StoreUnavailable
from service.domain.ids import SaleId
from service.domain.order import Order, Owed
from service.domain.reservation import Status
from service.domain.sale import Authority
from service.domain.stock import Effect
from service.ports.orders import SaleTransaction
from tests.fixtures.sql import NOW, SALE, Stores, claim, drive, id_of, problems, rules, sell, sold, stores_on
from tests.fixtures.stage_tools import counted, until

pytestmark = pytest.mark.faults

RETRIES = "dropgate_sql_retries_total"
OTHER = SaleId("sneaker-02")
PATIENT = DatabaseOptions(timeout_s=20, transaction_timeout_s=40)


@pytest.fixture
async def rival(mysql_url: str, mysql: Stores) -> AsyncIterator[Stores]:
    """Another process. The sales are there."""
    for sale_id in (SALE, OTHER):
        await mysql.sales.create(sale_id, rules(stock=100), NOW)
    opened = stores_on(mysql_url, PATIENT)
    yield opened
    await opened.database.close()


# --- deadlocks --------------------------------------------------------------------------------------------------------


async def test_two_that_lock_two_orders_crosswise_are_both_done(mysql: Stores, rival: Stores) -> None:
    """Payments take no sale's lock: two transactions over the same orders may meet in opposite orders."""
    anna, bert = await sold(mysql, "anna"), await sold(mysql, "bert")
    before = counted(RETRIES, why="deadlock")
    meeting = asyncio.Barrier(2)

    async def crosswise(stores: Stores, first: Order, second: Order) -> int:
        runs = 0

        async def work(transaction: SaleTransaction) -> None:
            nonlocal runs
            runs += 1
            assert await transaction.replace_order(first, expected=Status.AWAITING_PAYMENT)
            if runs == 1:
                await meeting.wait()
            assert await transaction.replace_order(second, expected=Status.AWAITING_PAYMENT)

        await stores.orders.transact([], work)
        return runs

    runs = await asyncio.gather(crosswise(mysql, anna, bert), crosswise(rival, bert, anna))
    assert sorted(runs) in ([1, 2], [2, 2])
    assert counted(RETRIES, why="deadlock") - before == sum(runs) - 2


async def test_many_that_lock_each_other_crosswise_are_all_done(mysql: Stores, rival: Stores) -> None:
    orders = [await sold(mysql, f"b{n}") for n in range(6)]

    async def touch(stores: Stores, n: int) -> None:
        async def work(transaction: SaleTransaction) -> None:
            for order in orders if n % 2 else reversed(orders):
                assert await transaction.replace_order(order, expected=Status.AWAITING_PAYMENT)

        await stores.orders.transact([], work)

    await asyncio.gather(*(touch((mysql, rival)[n % 2], n) for n in range(24)))
    assert await problems(mysql) == ()


# --- lock waits -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _held(stores: Stores, sale_id: SaleId = SALE) -> AsyncIterator[asyncio.Event]:
    """Another process has the sale's row, until the event is set."""
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(_: SaleTransaction) -> None:
        held.set()
        await release.wait()

    holding = asyncio.create_task(stores.orders.transact([sale_id], hold))
    await held.wait()
    try:
        yield release
    finally:
        release.set()
        await holding


async def test_who_waits_longer_than_the_server_lets_it_tries_again_and_gets_its_turn(
    mysql_url: str, rival: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = sql_database.MYSQL_SESSION.replace("innodb_lock_wait_timeout = 3", "innodb_lock_wait_timeout = 1")
    assert hasty != sql_database.MYSQL_SESSION
    monkeypatch.setattr(sql_database, "MYSQL_SESSION", hasty)
    waiting = stores_on(mysql_url, PATIENT)
    before = counted(RETRIES, why="lock_wait")

    async def retried() -> bool:
        return counted(RETRIES, why="lock_wait") >= before + 2

    async with _held(rival) as release:
        selling = asyncio.create_task(sell(waiting, [claim("anna")]))
        await until(retried, "the wait at the row was given up twice, and begun again")
        assert not selling.done()
        release.set()
        assert len((await selling).accepted) == 1
    assert await problems(waiting) == ()
    await waiting.database.close()


async def test_who_never_gets_its_turn_gives_up_at_its_deadline(mysql_url: str, rival: Stores) -> None:
    hurried = stores_on(mysql_url, DatabaseOptions(timeout_s=1.0, transaction_timeout_s=1.0))
    async with _held(rival), asyncio.timeout(30):
        with pytest.raises(StoreUnavailable):
            await sell(hurried, [claim("anna")])
    assert await rival.orders.order(id_of("anna")) is None
    await hurried.database.close()


# --- who does not wait ------------------------------------------------------------------------------------------------


async def test_the_load_of_a_sale_keeps_no_other_sale_waiting(
    mysql: Stores, rival: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPEATABLE READ locks the gaps around a range that it changes: another sale's neighbours in an index."""
    await drive(mysql, Authority.LOADING, Authority.REDIS, sale_id=OTHER)
    await _owe(mysql, SALE, 1)
    loading = await drive(mysql, Authority.LOADING)
    reading, go_on = asyncio.Event(), asyncio.Event()
    records = snapshot._records

    async def slow(connection: AsyncConnection, sale_id: SaleId) -> list[object]:
        found = await records(connection, sale_id)
        reading.set()
        await go_on.wait()
        return list(found)

    monkeypatch.setattr(snapshot, "_records", slow)
    taking = asyncio.create_task(rival.sales.snapshot(SALE, loading.epoch))
    await reading.wait()
    before = counted(RETRIES, why="lock_wait")
    await _owe(mysql, OTHER, 2)
    assert (await sell(mysql, [claim("bert", sale_id=OTHER)], sale_id=OTHER)).accepted
    assert not taking.done()
    go_on.set()
    assert await taking is not None
    assert counted(RETRIES, why="lock_wait") == before
    assert [owed.sale_id for owed in await mysql.orders.owed(9)] == [OTHER]


async def _owe(stores: Stores, sale_id: SaleId, epoch: int) -> None:
    id_ = id_of("anna", sale_id=sale_id)
    owed = Owed(reservation_id=id_, sale_id=sale_id, segment=0, epoch=epoch, effect=Effect.RETURN)

    async def work(transaction: SaleTransaction) -> None:
        await transaction.owe([owed])

    await stores.orders.transact([sale_id], work)


async def test_an_order_that_is_paid_keeps_no_other_order_waiting(mysql: Stores, rival: Stores) -> None:
    """Its UPDATE goes by the key: by the index over states it would lock whom it passes."""
    orders = [await sold(mysql, f"b{n}") for n in range(8)]
    paying, go_on = asyncio.Event(), asyncio.Event()

    async def slow(transaction: SaleTransaction) -> None:
        assert await transaction.replace_order(orders[3], expected=Status.AWAITING_PAYMENT)
        paying.set()
        await go_on.wait()

    holding = asyncio.create_task(rival.orders.transact([], slow))
    await paying.wait()
    before = counted(RETRIES, why="lock_wait")
    for order in [*orders[:3], *orders[4:]]:

        async def touch(transaction: SaleTransaction, order: Order = order) -> bool:
            return await transaction.replace_order(order, expected=Status.AWAITING_PAYMENT)

        assert await mysql.orders.transact([], touch)
    go_on.set()
    await holding
    assert counted(RETRIES, why="lock_wait") == before
