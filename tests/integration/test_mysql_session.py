"""What a session is: its isolation, its clock, its characters. Whatever the server's own settings are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from msgspec import structs
from sqlalchemy import Connection, event, select, text

from service.adapters.sql import migrate, tables, transactions
from service.adapters.sql.database import Database, DatabaseOptions, Lane
from service.domain.errors import RowRefused
from service.domain.ids import BuyerId, ReservationId
from service.domain.order import Claim
from service.domain.sale import Authority
from service.ports.orders import SaleTransaction
from tests.fixtures import real_servers
from tests.fixtures.sql import NOW, REAL, SALE, Stores, claim, drive, id_of, problems, rules, sell, sold, stores_on
from tests.servers.mariadb import MariaDB

READ_COMMITTED, REPEATABLE_READ = "READ-COMMITTED", "REPEATABLE-READ"
ISOLATION = "SELECT @@tx_isolation"
CARELESS = (
    "--sql-mode=",
    "--character-set-server=latin1",
    "--collation-server=latin1_swedish_ci",
    "--skip-character-set-client-handshake",
    "--default-time-zone=+09:00",
    "--transaction-isolation=SERIALIZABLE",
    "--innodb-lock-wait-timeout=50",
    "--wait-timeout=28800",
)
ALIKE = (
    "anna",
    "Anna",
    "ANNA",
    "anna ",
    "anna  ",
    " anna",
    "ánna",
    "a\u0301nna",
    "straße",
    "strasse",
    "anna\u00a0",
    "anna\u0000",
    "😀",
    "😁",
    "日本",
    "%_'\"\\\n",
)
"""Different buyers, whom one collation or another takes for the same."""


pytestmark = REAL


@pytest.fixture(scope="module")
def careless_server() -> Iterator[MariaDB]:
    """None of its settings is as Dropgate would have it."""
    with ExitStack() as stack:
        yield real_servers._started(stack, lambda: MariaDB(*CARELESS))


@pytest.fixture
async def careless(careless_server: MariaDB) -> AsyncIterator[Stores]:
    """One process, on a database of its own there."""
    opened = stores_on(careless_server.new_database())
    await migrate.upgrade(opened.database)
    await opened.sales.create(SALE, rules(stock=100), NOW)
    yield opened
    await opened.database.close()


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", Lane)
async def test_each_pool_reads_committed_and_one_snapshot_only_where_it_is_asked_for(
    mysql_url: str, lane: Lane
) -> None:
    """One connection, again and again: what a snapshot set is gone with it."""
    database = Database(mysql_url, DatabaseOptions(pool_max=1, read_max=1, view_max=1))
    for one_snapshot in (False, True, False, True, False):
        expected = REPEATABLE_READ if one_snapshot else READ_COMMITTED
        for opened in (database.reading, database.writing):
            async with opened(one_snapshot=one_snapshot, lane=lane) as connection:
                assert (await connection.execute(text(ISOLATION))).scalar_one() == expected
    await database.close()


@contextmanager
def isolations(database: Database) -> Iterator[set[str]]:
    """Under which statements are executed meanwhile."""
    found: set[str] = set()

    def look(connection: Connection, *_: object) -> None:
        cursor = connection.connection.cursor()
        cursor.execute(ISOLATION)
        found.update(str(row[0]) for row in cursor.fetchall())
        cursor.close()

    engines = [engine.sync_engine for engine in database.engines.values()]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", look)
    try:
        yield found
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", look)


async def test_the_load_and_the_ledger_see_one_instant_and_all_else_the_newest(mysql: Stores) -> None:
    await mysql.sales.create(SALE, rules(), NOW)
    with isolations(mysql.database) as found:
        await sold(mysql, "anna")
        await mysql.orders.order(id_of("anna"))
        await mysql.sales.sales()
        loading = await drive(mysql, Authority.LOADING)
    assert found == {READ_COMMITTED}
    for of_one_instant in (mysql.sales.snapshot(SALE, loading.epoch), mysql.orders.terms(SALE)):
        with isolations(mysql.database) as found:
            await of_one_instant
        assert found == {REPEATABLE_READ}


# --- a server with other ideas ----------------------------------------------------------------------------------------


async def test_the_servers_own_settings_do_not_matter(careless: Stores) -> None:
    names = ("tx_isolation", "time_zone", "character_set_client", "character_set_results", "wait_timeout")
    async with careless.database.reading() as connection:
        row = (await connection.execute(text("SELECT " + ", ".join(f"@@{name}" for name in names)))).one()
        mode = (await connection.execute(text("SELECT @@sql_mode"))).scalar_one()
    assert tuple(row) == (READ_COMMITTED, "+00:00", "utf8mb4", "utf8mb4", 30)
    assert "STRICT_ALL_TABLES" in mode


async def test_what_only_looks_alike_is_different_and_comes_back_as_it_was(careless: Stores) -> None:
    made = (await sell(careless, [_claim(buyer) for buyer in ALIKE])).accepted
    assert len(made) == len(ALIKE)
    assert await careless.orders.orders([order.id for order in made]) == {order.id: order for order in made}
    for order in made:
        assert order.coupon_code == order.buyer_id
        assert await careless.orders.live_orders(SALE, [order.buyer_id]) == {order.buyer_id: order}

    async def units(transaction: SaleTransaction) -> dict[BuyerId, int]:
        return await transaction.buyer_units(SALE, [BuyerId(buyer) for buyer in ALIKE])

    assert await careless.orders.transact([SALE], units) == {BuyerId(buyer): 1 for buyer in ALIKE}
    assert await problems(careless) == ()


async def test_times_are_utc_milliseconds_whatever_the_servers_zone(careless: Stores) -> None:
    order = (await sell(careless, [claim("anna", created_at_ms=NOW + 1)], NOW + 7)).accepted[0]
    found = await careless.orders.order(order.id)
    assert found is not None
    assert (found.created_at_ms, found.ordered_at_ms, found.expires_at_ms) == (NOW + 1, NOW + 7, NOW + 900_007)
    assert await careless.orders.expired(NOW + 900_006, 9) == []
    assert await careless.orders.expired(NOW + 900_007, 9) == [order]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("coupon_code", "x" * 256),
        ("buyer_id", "ä" * 257),
        ("fingerprint", "x" * 256),
        ("quantity", 2**63),
    ],
)
async def test_what_does_not_fit_is_refused_and_not_cut(careless: Stores, field: str, value: object) -> None:
    order = await sold(careless, "anna")
    too_long = replace(order, id=ReservationId(f"{order.id}x"), **{field: value})  # type: ignore[arg-type]

    async def insert(transaction: SaleTransaction) -> None:
        await transaction.insert_orders([too_long])

    with pytest.raises(RowRefused):
        await careless.orders.transact([SALE], insert)
    row = tables.orders.c
    assert len(await transactions.read_rows(careless.database, select(row.id))) == 1


def _claim(buyer: str) -> Claim:
    """With words of the buyer's in every kind of column."""
    made = claim(buyer)
    candidate = structs.replace(made.candidate, coupon_code=buyer, metadata={buyer: buyer})
    return replace(made, candidate=candidate)
