"""TLS to a real server: verified by default, and never given up in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import transactions
from service.adapters.sql.database import Database, DatabaseOptions
from service.adapters.sql.mysql_tls import TlsFiles, context_of
from service.domain.errors import StoreUnavailable
from tests.servers.mariadb import MariaDB


@pytest.fixture
def with_tls(make_mariadb: Callable[..., MariaDB], certificates: Path) -> MariaDB:
    files = [f"--ssl-{name}={certificates / file}" for name, file in FILES.items()]
    return make_mariadb(*files)


FILES = {"ca": "ca.pem", "cert": "server.pem", "key": "server.key"}


async def _cipher(url: str, files: TlsFiles | None) -> str:
    tls = None if files is None else context_of(files)
    database = Database(url, DatabaseOptions(pool_max=1, tls=tls))

    async def work(connection: AsyncConnection) -> str:
        found = await connection.execute(text("SHOW STATUS LIKE 'Ssl_cipher'"))
        return str(found.one()[1])

    try:
        return await transactions.read(database, work)
    finally:
        await database.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_server_of_a_trusted_authority_is_spoken_to_in_cipher(
    with_tls: MariaDB, certificates: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        trusted = TlsFiles(ca=certificates / "ca.pem")
        assert runner.run(_cipher(with_tls.url, trusted)).startswith("TLS_")
        known = TlsFiles(ca=certificates / "ca.pem", cert=certificates / "client.pem", key=certificates / "client.key")
        assert runner.run(_cipher(with_tls.url, known)).startswith("TLS_")
        assert runner.run(_cipher(with_tls.url, None)) == "", "the test can tell"

        for stranger in (TlsFiles(), TlsFiles(ca=certificates / "other.pem")):
            with pytest.raises(StoreUnavailable):
                runner.run(_cipher(with_tls.url, stranger))
        assert runner.run(_cipher(with_tls.url, TlsFiles(verify=False))).startswith("TLS_")
        other_name = with_tls.url.replace("127.0.0.1", "localhost")
        with pytest.raises(StoreUnavailable):
            runner.run(_cipher(other_name, trusted))


async def test_a_server_that_offers_no_tls_is_not_spoken_to_in_clear(make_mariadb: Callable[..., MariaDB]) -> None:
    plain = make_mariadb("--skip-ssl")
    with pytest.raises(StoreUnavailable, match="no TLS"):
        await _cipher(plain.url, TlsFiles(verify=False))
    assert await _cipher(plain.url, None) == ""
