"""Every statement that a store executes goes by an index, and reads what it needs: on 50,000 orders, on each database.

What is looked at is caught as it goes out, while each method of each store runs (sql_exercises.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select, text

from service.adapters.sql import migrate, tables
from service.adapters.sql.database import Database, DatabaseOptions
from tests.fixtures import (
    sql_bulk,
    sql_bulk_load,
    sql_exercises,  # noqa: F401 - they enter themselves into EXERCISES
    sql_exercises_inside,  # noqa: F401
)
from tests.fixtures.real_servers import STARTING_S
from tests.fixtures.sql import ON_MARIADB
from tests.fixtures.sql_exercise import EXERCISES, Exercise, methods, shop_on
from tests.fixtures.sql_plans import KEY, watched

pytestmark = pytest.mark.slow

PATIENT = DatabaseOptions(timeout_s=60, transaction_timeout_s=60)
"""A busy machine's: how long it takes is not the matter here."""


@pytest.fixture(scope="session")
def shop_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Loaded once a session and database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans') / 'orders.db'}"
    else:
        url = request.getfixturevalue("mariadb").new_database()
    asyncio.run(_loaded(url))
    return url


async def _loaded(url: str) -> None:
    database = Database(url, PATIENT)
    await migrate.upgrade(database)
    await sql_bulk_load.load(database)
    await database.close()


@pytest.fixture
async def database(shop_url: str) -> AsyncIterator[Database]:
    opened = Database(shop_url, PATIENT)
    yield opened
    await opened.close()


ON_SQLITE = pytest.param("sqlite", marks=[pytest.mark.timeout(STARTING_S), pytest.mark.xdist_group("sql plans")])
on_each_database = pytest.mark.parametrize("shop_url", [ON_SQLITE, ON_MARIADB], indirect=True)
EACH = [pytest.param(it, id=method) for method, it in EXERCISES.items()]


@on_each_database
@pytest.mark.parametrize("exercise", EACH)
async def test_a_method_of_a_store_goes_by_its_indexes(database: Database, exercise: Exercise) -> None:
    with watched(database) as found:
        await exercise.run(shop_on(database))
    for planned in found:
        for step in planned.steps:
            assert step.index is not None or step.table in exercise.whole, f"without an index: {planned}"
            assert not step.scans or step.table in exercise.whole, f"reads all of {step.table}: {planned}"
        sorts = exercise.sorts is not None and exercise.sorts in planned.statement
        assert sorts or not planned.sorts, f"sorts: {planned}"
        assert (planned.read or 0) <= exercise.reads, f"reads more than {exercise.reads} rows: {planned}"
    used = {index for planned in found for index in planned.indexes}
    shown = "\n\n".join(map(str, found))
    assert exercise.uses <= used <= exercise.uses | exercise.may, f"uses {used}:\n{shown}"


def test_every_method_of_every_store_is_exercised() -> None:
    """A new one: write its exercise in tests/fixtures/sql_exercises.py, with what its statements are allowed."""
    assert set(EXERCISES) == methods()


def test_every_index_of_a_table_that_is_read_serves_a_statement() -> None:
    wanted = {index.name for table in tables.metadata.sorted_tables for index in table.indexes}
    named = set().union(*[exercise.uses | exercise.may for exercise in EXERCISES.values()])
    of_the_desk = {"audit_by_subject", "reviews_by_resolution"}
    assert wanted - named == of_the_desk
    assert named <= wanted


@on_each_database
async def test_a_scan_or_a_sort_would_be_seen(database: Database) -> None:
    """The watch is not blind."""
    order = tables.orders.c
    with watched(database) as found:
        async with database.reading() as connection:
            await connection.execute(select(order.id).where(order.amount > 1).order_by(order.amount).limit(3))
            await connection.execute(select(order.id).where(order.id == sql_bulk.id_of(sql_bulk.SALES[0], 1)))
            await connection.execute(text("DELETE FROM orders WHERE amount > 99999999"))
    scanned, by_key, deleted = found
    assert (scanned.sorts, by_key.sorts) == (True, False)
    assert [step.scans for it in found for step in it.steps] == [True, False, True]
    assert [step.index for step in by_key.steps] == [KEY]
    if not database.is_sqlite:
        assert scanned.read is not None
        assert scanned.read > len(sql_bulk.SALES) * sql_bulk.ORDERS_A_SALE
        assert by_key.read == 1
        assert deleted.read is not None
        assert deleted.read > len(sql_bulk.SALES) * sql_bulk.ORDERS_A_SALE
