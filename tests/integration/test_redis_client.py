"""The connection's manners: one attempt, bounded waits, and no connection that still owes a reply."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio.connection import SSLConnection

from service.adapters.redis.client import RedisClient, RedisOptions
from service.adapters.redis.stock import RedisStock
from service.adapters.system_clock import SystemClock
from service.domain.errors import StockUnavailable
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import batch, candidate, new_slot

QUICK = RedisOptions(timeout_s=0.2, connect_timeout_s=0.2, pool_wait_s=0.1, pool_max=4)

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class FakeServer:
    """A socket that hears commands and behaves badly; `calls` counts the commands it heard."""

    def __init__(self, folder: str, answer: bytes | None) -> None:
        self.url = f"unix://{Path(folder) / 's'}"
        self.path = str(Path(folder) / "s")
        self.calls = 0
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            self.calls += 1
            if self._answer is not None:
                writer.write(self._answer)
                break
        writer.close()


@pytest.fixture(params=[pytest.param(b"", id="cut"), pytest.param(b"*2\r\n$2\r\nok\r\n", id="half a reply")])
async def fake(request: pytest.FixtureRequest) -> AsyncIterator[FakeServer]:
    with tempfile.TemporaryDirectory(prefix="dg-") as folder:
        server = FakeServer(folder, request.param)
        async with await asyncio.start_unix_server(server.serve, server.path):
            yield server


async def test_a_call_whose_reply_is_cut_is_sent_once(fake: FakeServer) -> None:
    stock = RedisStock(RedisClient(fake.url, QUICK), SystemClock())
    slot = new_slot()
    with pytest.raises(StockUnavailable):
        await stock.reserve(slot, batch(slot, candidate(slot)), 1)
    assert fake.calls == 1
    await stock.close()


async def test_a_call_without_a_reply_times_out_and_is_sent_once() -> None:
    with tempfile.TemporaryDirectory(prefix="dg-") as folder:
        silent = FakeServer(folder, None)
        async with await asyncio.start_unix_server(silent.serve, silent.path):
            client = RedisClient(silent.url, QUICK)
            began = time.monotonic()
            with pytest.raises(StockUnavailable):
                await client.execute("EVALSHA", "0" * 40, "0")
            assert time.monotonic() - began < 2 * QUICK.budget_s
            assert (silent.calls, client.in_use) == (1, 0)
            await client.close()


async def test_nobody_there_is_said_at_once() -> None:
    client = RedisClient("unix:///nonexistent/redis.sock", QUICK)
    with pytest.raises(StockUnavailable):
        await client.execute("PING")
    assert not await client.healthy()
    await client.close()


def test_user_password_and_tls_come_from_the_url() -> None:
    pool = RedisClient("rediss://anna:secret@redis.example:6380/2")._pool
    assert pool.connection_class is SSLConnection
    wanted = {"username": "anna", "password": "secret", "host": "redis.example", "port": 6380, "db": 2}
    assert {name: pool.connection_kwargs[name] for name in wanted} == wanted


@pytest.mark.server
async def test_every_bound_is_explicit_and_nothing_is_retried(valkey_server: RealServer) -> None:
    client = RedisClient(valkey_server.url, QUICK)
    connection = await client._pool.get_connection()  # type: ignore[no-untyped-call]
    assert connection.retry.get_retries() == 0
    assert connection.retry_on_error == []
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (0.2, 0.2)
    assert (client._pool.max_connections, client._pool.timeout) == (4, 0.1)
    await client._pool.release(connection)
    await client.close()


@pytest.mark.server
async def test_a_full_pool_is_said_after_a_short_wait(valkey_server: RealServer) -> None:
    client = RedisClient(valkey_server.url, QUICK)
    held = [await client._pool.get_connection() for _ in range(QUICK.pool_max)]  # type: ignore[no-untyped-call]
    with pytest.raises(StockUnavailable, match="No connection available"):
        await client.execute("PING")
    for connection in held:
        await client._pool.release(connection)
    assert await client.healthy()
    await client.close()


@pytest.mark.server
async def test_a_cancelled_call_leaves_no_reply_for_the_next_one(make_server: Callable[..., RealServer]) -> None:
    server = make_server()
    client = RedisClient(server.url, RedisOptions(pool_max=2))
    waiting = [asyncio.create_task(client.execute("BLPOP", "list", "30")) for _ in range(2)]
    while server.info("clients")["blocked_clients"] < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(20):  # turns of the loop until both are past sending, where Python 3.11 may swallow a cancel
        await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    assert all(isinstance(it, asyncio.CancelledError) for it in await asyncio.gather(*waiting, return_exceptions=True))
    assert client.in_use == 0
    server.call("RPUSH", "list", "owed to nobody")
    for number in range(20):
        assert await client.execute("ECHO", str(number)) == str(number).encode()
    await client.close()


@pytest.mark.server
async def test_a_storm_of_cancelled_calls_leaks_no_connection(valkey_server: RealServer) -> None:
    client = RedisClient(valkey_server.url, RedisOptions(pool_max=8, pool_wait_s=5.0))
    storm = [asyncio.create_task(client.execute("ECHO", str(number))) for number in range(1_000)]
    for number, task in enumerate(storm):
        if number % 7 == 0:
            await asyncio.sleep(0)
        if number % 2:
            task.cancel()
    replies = await asyncio.gather(*storm, return_exceptions=True)
    assert set(replies[::2]) == {str(number).encode() for number in range(0, 1_000, 2)}
    assert client.in_use == 0
    assert await client.execute("ECHO", "after") == b"after"
    await client.close()


@pytest.mark.server
async def test_a_script_that_the_server_forgot_is_sent_again(valkey_server: RealServer) -> None:
    stock = RedisStock(RedisClient(valkey_server.url), SystemClock())
    slot = new_slot()
    first = await stock.count(slot)
    valkey_server.call("SCRIPT", "FLUSH")
    assert await stock.count(slot) == first
    await stock.close()


@pytest.mark.server
async def test_settings_that_lose_stock_are_named(make_server: Callable[..., RealServer]) -> None:
    server = make_server("valkey", "--maxmemory-policy", "allkeys-lru")
    client = RedisClient(server.url)
    stock = RedisStock(client, SystemClock())
    problems = await stock.problems()
    assert [problem.split(":")[1] for problem in problems] == [
        " set maxmemory-policy noeviction",
        " set appendonly yes and appendfsync everysec",
    ]
    server.call("CONFIG", "SET", "save", "900 1")
    assert len(await stock.problems()) == 1
    server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert await stock.problems() == []
    await stock.close()


@pytest.mark.server
async def test_settings_are_read_from_info_where_config_is_forbidden(make_server: Callable[..., RealServer]) -> None:
    server = make_server("valkey", "--maxmemory-policy", "allkeys-lru")
    server.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-config")
    stock = RedisStock(RedisClient(f"unix://app:secret@{server.socket}"), SystemClock())
    assert len(await stock.problems()) == 2
    server.call("CONFIG", "SET", "appendonly", "yes")
    assert len(await stock.problems()) == 1
    await stock.close()
