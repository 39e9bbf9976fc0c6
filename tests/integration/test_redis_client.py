"""The connection's manners: one attempt, bounded waits, no place that is lost, and no reply that is owed to another."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from service.adapters.redis.client import RedisClient, RedisOptions
from service.adapters.redis.stock import RedisStock
from service.adapters.system_clock import SystemClock
from service.domain.errors import StockRefused, StockUnavailable
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import batch, candidate, new_slot

QUICK = RedisOptions(timeout_s=0.2, connect_timeout_s=0.2, pool_wait_s=0.1, pool_max=4)


class FakeServer:
    """A socket that greets, hears a command and behaves badly; `calls` counts the commands it heard."""

    def __init__(self, path: Path, answer: bytes | None, *, greets: bool) -> None:
        self.url = f"unix://{path}"
        self.calls = 0
        self.open = 0
        self._answer = answer
        self._greets = greets

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        while heard := await reader.read(65_536):
            if b"PING" in heard and self._greets:
                writer.write(b"+PONG\r\n")
                continue
            self.calls += 1
            if self._answer is not None:
                writer.write(self._answer)
                break
        writer.close()
        await writer.wait_closed()
        self.open -= 1


@asynccontextmanager
async def fake_server(answer: bytes | None, *, greets: bool = True) -> AsyncIterator[FakeServer]:
    with tempfile.TemporaryDirectory(prefix="dg-") as folder:
        path = Path(folder) / "s"
        server = FakeServer(path, answer, greets=greets)
        async with await asyncio.start_unix_server(server.serve, path):
            yield server
            while server.open:  # noqa: ASYNC110
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    "answer", [pytest.param(b"", id="cut"), pytest.param(b"*2\r\n$2\r\nok\r\n", id="half a reply")]
)
async def test_a_call_whose_reply_is_cut_is_sent_once_and_may_have_happened(answer: bytes) -> None:
    async with fake_server(answer) as fake:
        client = RedisClient(fake.url, QUICK)
        stock = RedisStock(client, SystemClock())
        slot = new_slot()
        with pytest.raises(StockUnavailable) as unknown:
            await stock.reserve(slot, batch(slot, candidate(slot)), 1)
        assert not isinstance(unknown.value, StockRefused)
        assert (fake.calls, client.in_use) == (1, 0)
        await stock.close()


async def test_a_call_without_a_reply_times_out_and_is_sent_once() -> None:
    async with fake_server(None) as silent:
        client = RedisClient(silent.url, QUICK)
        began = time.monotonic()
        with pytest.raises(StockUnavailable, match=r"no answer within 0\.2 s") as unknown:
            await client.execute("EVALSHA", "0" * 40, "0")
        assert not isinstance(unknown.value, StockRefused)
        assert time.monotonic() - began < QUICK.budget_s
        assert (silent.calls, client.in_use) == (1, 0)
        await client.close()


async def test_a_server_that_accepts_and_is_silent_is_asked_for_nothing() -> None:
    """Before a call is sent the connection has shown that it answers: what was not sent did not happen."""
    async with fake_server(None, greets=False) as silent:
        client = RedisClient(silent.url, QUICK)
        with pytest.raises(StockRefused, match=r"no connection within 0\.2 s"):
            await client.execute("EVALSHA", "0" * 40, "0")
        assert (silent.calls, client.in_use) == (1, 0), "the greeting"
        await client.close()


async def test_nobody_there_is_said_at_once() -> None:
    client = RedisClient("unix:///nonexistent/redis.sock", QUICK)
    with pytest.raises(StockRefused, match="No such file"):
        await client.execute("PING")
    assert not await client.healthy()
    await client.close()


async def test_no_call_takes_longer_than_its_budget() -> None:
    """Each wait as long as it may be: for a place, for the greeting."""
    async with fake_server(None, greets=False) as silent:
        client = RedisClient(silent.url, QUICK)
        took_s: list[float] = []

        async def call() -> None:
            began = time.monotonic()
            with pytest.raises(StockUnavailable):
                await client.execute("PING")
            took_s.append(time.monotonic() - began)

        await asyncio.gather(*[call() for _ in range(50)])
        assert max(took_s) < QUICK.budget_s
        assert client.in_use == 0
        await client.close()


@pytest.mark.server
async def test_a_full_pool_is_said_after_a_short_wait(make_server: Callable[..., RealServer]) -> None:
    server = make_server()
    client = RedisClient(server.url, QUICK)
    waiting = [asyncio.create_task(client.execute("BLPOP", "list", "30")) for _ in range(QUICK.pool_max)]
    await _blocked(server, QUICK.pool_max)
    with pytest.raises(StockRefused, match="all 4 connections are taken"):
        await client.execute("PING")
    assert client.in_use == QUICK.pool_max
    replies = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(reply) for reply in replies} == {StockUnavailable}
    assert await client.healthy()
    await client.close()


@pytest.mark.server
async def test_a_cancelled_call_leaves_no_reply_for_the_next_one(make_server: Callable[..., RealServer]) -> None:
    server = make_server()
    client = RedisClient(server.url, RedisOptions(pool_max=2))
    waiting = [asyncio.create_task(client.execute("BLPOP", "list", "30")) for _ in range(2)]
    await _blocked(server, 2)
    for task in waiting:
        task.cancel()
    assert all(isinstance(it, asyncio.CancelledError) for it in await asyncio.gather(*waiting, return_exceptions=True))
    assert client.in_use == 0
    server.call("RPUSH", "list", "owed to nobody")
    for number in range(20):
        assert await client.execute("ECHO", str(number)) == str(number).encode()
    await client.close()


@pytest.mark.server
async def test_calls_cancelled_again_and_again_lose_no_place(valkey_server: RealServer) -> None:
    """By their deadline, by their caller, by both at the same moment; anywhere, also while they wait for a place."""
    client = RedisClient(valkey_server.url, RedisOptions(pool_max=4, pool_wait_s=0.02))
    dice = random.Random(7)

    async def call(number: int) -> None:
        async with asyncio.timeout(dice.random() * 0.02):
            assert await client.execute("ECHO", str(number)) == str(number).encode()

    for _ in range(5):
        storm = [asyncio.create_task(call(number)) for number in range(400)]
        for task in dice.sample(storm, 200):
            await asyncio.sleep(0)
            task.cancel()
            task.cancel()
        ends = await asyncio.gather(*storm, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), TimeoutError, StockRefused, asyncio.CancelledError}
        assert client.in_use == 0
    replies = await asyncio.gather(*[client.execute("ECHO", str(number)) for number in range(4)])
    assert replies == [str(number).encode() for number in range(4)]
    await client.close()


@pytest.mark.server
async def test_a_storm_on_a_small_pool_is_served_or_refused_and_opens_no_more_connections(
    make_server: Callable[..., RealServer],
) -> None:
    """F40: 2,000 calls at once on 20 connections, 1,000 of them cancelled midway."""
    server = make_server("redis")
    client = RedisClient(server.url, RedisOptions(pool_max=20))
    storm = [asyncio.create_task(client.execute("ECHO", str(number))) for number in range(2_000)]
    for number, task in enumerate(storm):
        if number % 100 == 0:
            await asyncio.sleep(0)
            assert server.info("clients")["connected_clients"] <= 20 + 1, "and this question's own"
        if number % 2:
            task.cancel()
    ends = await asyncio.gather(*storm, return_exceptions=True)
    served = [number for number, end in enumerate(ends) if end == str(number).encode()]
    others = {type(end) for number, end in enumerate(ends) if number not in set(served)}
    assert others <= {asyncio.CancelledError, StockRefused}
    assert served
    assert client.in_use == 0
    assert REGISTRY.get_sample_value("dropgate_redis_connections_in_use") == 0
    assert await asyncio.gather(*[client.execute("ECHO", "calm") for _ in range(20)]) == [b"calm"] * 20
    await client.close()


@pytest.mark.server
async def test_whoever_looks_again_disturbs_no_call_under_way(valkey_server: RealServer) -> None:
    client = RedisClient(valkey_server.url, RedisOptions(pool_max=8, pool_wait_s=5.0))

    async def echoes() -> None:
        for number in range(200):
            assert await client.execute("ECHO", str(number)) == str(number).encode()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(echoes()) for _ in range(8)]
        while not all(task.done() for task in tasks):
            await client.look_again()
            await asyncio.sleep(0.001)
    assert client.in_use == 0
    await client.close()


@pytest.mark.server
async def test_a_connection_that_the_server_closed_meanwhile_is_replaced_unnoticed(
    make_server: Callable[..., RealServer],
) -> None:
    server = make_server()
    client = RedisClient(server.url, RedisOptions(pool_max=4))
    for _ in range(5):
        await asyncio.gather(*[client.execute("PING") for _ in range(4)])
        server.call("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(0.01)  # the end of the connection is on its way
    assert await client.execute("ECHO", "here") == b"here"
    await client.close()


@pytest.mark.server
async def test_a_script_that_the_server_forgot_is_sent_again(valkey_server: RealServer) -> None:
    stock = RedisStock(RedisClient(valkey_server.url), SystemClock())
    slot = new_slot()
    first = await stock.count(slot)
    valkey_server.call("SCRIPT", "FLUSH")
    assert await stock.count(slot) == first
    await stock.close()


async def _blocked(server: RealServer, clients: int) -> None:
    while server.info("clients")["blocked_clients"] < clients:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(20):  # turns of the loop, until all are past sending
        await asyncio.sleep(0)


# --- what of its settings loses stock ---------------------------------------------------------------------------------


@pytest.mark.server
async def test_settings_that_lose_stock_are_named(make_server: Callable[..., RealServer]) -> None:
    server = make_server("valkey", "--maxmemory-policy", "allkeys-lru")
    stock = RedisStock(RedisClient(server.url), SystemClock())
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
    (eviction,) = await stock.problems()
    assert "set maxmemory-policy noeviction" in eviction
    (unseen,) = await stock.advice()
    assert "allow CONFIG GET" in unseen
    server.call("CONFIG", "SET", "appendonly", "yes")
    assert (await stock.problems(), await stock.advice()) == ([eviction], [])
    await stock.close()


@pytest.mark.server
async def test_a_server_whose_config_has_another_name_is_taken_as_one_that_may_not_be_asked(
    make_server: Callable[..., RealServer],
) -> None:
    """As hosted ones do."""
    server = make_server("redis", "--rename-command", "CONFIG", "")
    stock = RedisStock(RedisClient(server.url), SystemClock())
    assert await stock.problems() == []
    (unseen,) = await stock.advice()
    assert "allow CONFIG GET" in unseen
    await stock.close()


@pytest.mark.server
async def test_a_replica_and_a_full_server_are_named(make_server: Callable[..., RealServer]) -> None:
    master = make_server("valkey", "--repl-diskless-sync-delay", "0")
    server = make_server("valkey", "--appendonly", "yes")
    stock = RedisStock(RedisClient(server.url), SystemClock())
    server.follow(master)
    (replica,) = await stock.problems()
    assert replica.startswith("Redis is a replica")
    server.follow(None)
    server.call("CONFIG", "SET", "maxmemory", 1)
    (full,) = await stock.problems()
    assert full.startswith("Redis is full")
    assert "raise maxmemory" in full
    await stock.close()
