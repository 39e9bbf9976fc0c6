"""A connection whose server has gone: an error that says so, from whichever event loop."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from aiomysql.connection import Connection
from pymysql.err import InterfaceError

from service.adapters.sql.mysql_connection import connect
from tests.servers.mariadb import PASSWORD, USER, MariaDB

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_transport_that_was_reset_is_not_written_to(run, mariadb: MariaDB) -> None:
    """uvloop raises a RuntimeError of its own there, which would be nobody's to catch."""

    async def story() -> None:
        connection = await reset(mariadb)
        with pytest.raises(InterfaceError, match="Not connected"):
            await connection.query("SELECT 1")
        await (await reset(mariadb)).ensure_closed()

    run(story())


async def reset(mariadb: MariaDB) -> Connection:
    """As the event loop leaves it when the other side resets it."""
    connection = await connect(host="127.0.0.1", port=mariadb.port, user=USER, password=PASSWORD, connect_timeout=5)
    connection._writer.transport.abort()
    await asyncio.sleep(0)
    return connection


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "it's",
        'say "yes"',
        "back\\slash",
        "\\",
        "'",
        "';--",
        "line\nfeed\r",
        "nul\x00\x1a",
        "ümlaut ☃ 𝄞",
        "%s",
    ],
)
async def test_what_is_written_comes_back_as_it_was(mariadb: MariaDB, text: str) -> None:
    connection = await connect(host="127.0.0.1", port=mariadb.port, user=USER, password=PASSWORD, charset="utf8mb4")
    try:
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT %s, %s", (text, f"{text}{text}"))
            assert await cursor.fetchone() == (text, text + text)
    finally:
        await connection.ensure_closed()
