"""A sale's row that somebody else holds: it costs that sale its writes, and nobody anything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.adapters.sql.database import DatabaseOptions
from service.domain.errors import StoreUnavailable
from service.domain.ids import SaleId
from service.ports.orders import LEADER_LEASE, SaleTransaction
from tests.fixtures.sql import LEASE_MS, NOW, ON_MARIADB, SALE, Stores, claim, id_of, rules, sell, stores_on

OTHER = SaleId("sneaker-02")
OPERATIONS = 80
POOL = 8
SOON_S = 1.0
"""Half of what a process's view may be late."""


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    opened = stores_on(database_url, DatabaseOptions(pool_max=POOL, timeout_s=2, transaction_timeout_s=4))
    for sale_id in (SALE, OTHER):
        await opened.sales.create(sale_id, rules(), NOW)
    yield opened
    await opened.database.close()


async def _nothing(_: SaleTransaction) -> None:
    return


@asynccontextmanager
async def _stuck(stores: Stores, database_url: str) -> AsyncIterator[None]:
    """Another process holds the row, and this one has eighty operations on that sale under way."""
    rival = stores_on(database_url)
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(_: SaleTransaction) -> None:
        held.set()
        await release.wait()

    holding = asyncio.create_task(rival.orders.transact([SALE], hold))
    await held.wait()
    waiting = [asyncio.create_task(stores.orders.transact([SALE], _nothing)) for _ in range(OPERATIONS)]
    await asyncio.sleep(0.3)
    try:
        yield
    finally:
        release.set()
        await asyncio.gather(holding, *waiting, return_exceptions=True)
        await rival.database.close()


async def test_the_view_of_all_sales_is_read_as_if_nothing_was(stores: Stores, database_url: str) -> None:
    async with _stuck(stores, database_url):
        for _ in range(3):
            began_s = time.monotonic()
            assert len(await stores.sales.sales()) == 2
            assert await stores.sales.keys() == []
            assert await stores.orders.order(id_of("anna")) is None
            assert time.monotonic() - began_s < SOON_S


@pytest.mark.parametrize("database_url", [ON_MARIADB], indirect=True)  # SQLite has one lock for the whole file
async def test_another_sale_goes_on(stores: Stores, database_url: str) -> None:
    async with _stuck(stores, database_url):
        began_s = time.monotonic()
        assert (await sell(stores, [claim("anna", sale_id=OTHER)], sale_id=OTHER)).accepted
        assert await stores.sales.acquire_lease(LEADER_LEASE, "me", NOW, LEASE_MS)
        assert time.monotonic() - began_s < SOON_S


async def test_a_storm_of_reads_does_not_keep_the_view_waiting(stores: Stores) -> None:
    """All connections for reading are taken by reads that take their time."""
    async with asyncio.timeout(10):
        opened = [stores.database.reading() for _ in range(stores.database.options.read_max)]
        for reading in opened:
            await reading.__aenter__()
        assert len(await stores.sales.sales()) == 2
        assert await stores.sales.acquire_lease(LEADER_LEASE, "me", NOW, LEASE_MS)
        for reading in opened:
            await reading.__aexit__(None, None, None)


async def test_who_waits_for_a_turn_gives_up_in_time_and_leaves_nothing_behind(
    stores: Stores, database_url: str
) -> None:
    async with _stuck(stores, database_url):
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await stores.orders.transact([OTHER, SALE], _nothing)
        assert time.monotonic() - began_s < 4 + SOON_S
    await asyncio.gather(*[stores.orders.transact([OTHER, SALE], _nothing) for _ in range(OPERATIONS)])
    assert stores.database.turns.idle


async def test_what_slept_past_its_deadline_is_not_committed(stores: Stores) -> None:
    """A process that was paused with the clock it had read must not make an order that GET calls unknown since."""

    async def sleeps(transaction: SaleTransaction) -> None:
        await transaction.audit("me", "sleep", SALE, why="", detail={}, at_ms=NOW)
        time.sleep(stores.database.options.transaction_timeout_s)  # noqa: ASYNC251 - the whole process stands still

    with pytest.raises(StoreUnavailable):
        await stores.orders.transact([SALE], sleeps)
    assert await _audit_rows(stores) == 0
    await stores.orders.transact([SALE], _nothing)


async def _audit_rows(stores: Stores) -> int:
    from sqlalchemy import func, select

    from service.adapters.sql import tables, transactions

    rows = await transactions.read_rows(stores.database, select(func.count()).select_from(tables.audit))
    return int(rows[0][0])
