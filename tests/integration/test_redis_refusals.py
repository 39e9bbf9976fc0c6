"""What a real Redis says instead of doing it: each a sentence with its remedy, and nothing was done."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

import pytest
import redis

from service.adapters.memory.clock import ManualClock
from service.adapters.redis.client import RedisClient, RedisOptions
from service.adapters.redis.stock import RedisStock
from service.domain.errors import StockRefused, StockUnavailable
from service.domain.stock import Slot
from tests.fixtures.stage_tools import until
from tests.fixtures.stock import batch, candidate, count, load, new_slot
from tests.servers.redis7 import Redis

pytestmark = [pytest.mark.server, pytest.mark.faults]


@dataclass
class Shop:
    """A slot with ten units on a server of the test's own."""

    server: Redis
    client: RedisClient
    stock: RedisStock
    slot: Slot

    async def call(self, *command: object) -> object:
        """As somebody else."""
        return await asyncio.to_thread(self.server.call, *command)

    async def refusal(self) -> StockRefused:
        """Of a reserve call."""
        with pytest.raises(StockRefused) as refused:
            await self.stock.reserve(self.slot, batch(self.slot, candidate(self.slot)), 1)
        return refused.value

    async def nothing_was_done(self) -> None:
        terms = await count(self.stock, self.slot)
        assert (terms.available, terms.undelivered_batches) == (10, 0)


SLOW_TO_LOAD = ("--appendonly", "no", "--save", "3600 1", "--key-load-delay", "20000")
"""20 ms a key, from a snapshot: of an append-only file it reads a thousand commands between two answers."""
ANSWERS_WHILE_LOADING = ("--loading-process-events-interval-bytes", "1024")


@pytest.fixture
async def shop(request: pytest.FixtureRequest, make_redis7: Callable[..., Redis]) -> AsyncIterator[Shop]:
    server = make_redis7(*getattr(request, "param", ()))
    client = RedisClient(server.url)
    shop = Shop(server, client, RedisStock(client, ManualClock()), new_slot())
    await load(shop.stock, shop.slot, 10)
    yield shop
    await shop.stock.close()


@pytest.mark.parametrize(
    ("settings", "why", "remedy"),
    [
        ({"maxmemory": ("1", "0")}, "its memory is full (", "raise maxmemory"),
        ({"min-replicas-to-write": ("1", "0")}, "too few replicas follow it", "bring them back"),
    ],
)
async def test_a_server_that_takes_no_writes(
    shop: Shop, settings: dict[str, tuple[str, str]], why: str, remedy: str
) -> None:
    for name, (wrong, _) in settings.items():
        await shop.call("CONFIG", "SET", name, wrong)
    refused = await shop.refusal()
    assert (refused.why or "").startswith(why), refused
    assert (refused.remedy or "").startswith(remedy), refused
    for name, (_, right) in settings.items():
        await shop.call("CONFIG", "SET", name, right)
    await shop.nothing_was_done()


async def _fail_to_save(shop: Shop) -> None:
    shutil.rmtree(shop.server.folder)
    await shop.call("BGSAVE")

    async def has_failed() -> bool:
        return shop.server.call("INFO", "persistence")["rdb_last_bgsave_status"] == "err"

    await until(has_failed, "the snapshot failed")


async def test_a_snapshot_that_failed_and_stops_no_writes(shop: Shop) -> None:
    """It is a server that sells: with snapshots that may fail, and with one that somebody asked for by hand."""
    await shop.call("CONFIG", "SET", "save", "3600 1")
    await shop.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    await _fail_to_save(shop)
    assert await shop.stock.problems() == []
    await shop.call("CONFIG", "SET", "save", "")
    await shop.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
    assert await shop.stock.problems() == []
    await shop.stock.reserve(shop.slot, batch(shop.slot, candidate(shop.slot)), 1)
    assert (await count(shop.stock, shop.slot)).available == 9


async def test_a_server_that_cannot_save_to_its_disk(shop: Shop) -> None:
    await shop.call("CONFIG", "SET", "save", "3600 1")
    await _fail_to_save(shop)
    refused = await shop.refusal()
    assert (refused.why or "").startswith("it cannot write to its disk, and takes no writes (MISCONF"), refused
    assert refused.remedy == "look at its log, and at the space on its disk"
    (problem,) = await shop.stock.problems()
    assert problem.startswith("Redis cannot write to its disk, and takes no writes: ")
    await shop.call("CONFIG", "SET", "save", "")
    assert await shop.stock.problems() == []
    await shop.nothing_was_done()


async def test_a_server_that_was_demoted_and_has_no_master_yet(shop: Shop) -> None:
    """Its ids are still those of the stamp: it would count, but it cannot sell."""
    await shop.call("REPLICAOF", "127.0.0.1", "1")
    await shop.nothing_was_done()
    refused = await shop.refusal()
    assert (refused.why or "").startswith("it is a replica, which takes no writes ("), refused
    await shop.call("REPLICAOF", "NO", "ONE")


async def test_a_server_that_is_busy_with_somebodys_script(shop: Shop) -> None:
    await shop.call("CONFIG", "SET", "busy-reply-threshold", "10")

    def hog() -> None:
        with suppress(redis.RedisError):
            shop.server.call("EVAL", "while true do end", 0)

    somebody = Thread(target=hog)
    somebody.start()
    try:

        async def is_busy() -> bool:
            try:
                await shop.client.execute("PING")
            except StockRefused as refused:
                return "busy with a script" in (refused.why or "")
            except StockUnavailable:
                return False
            return False

        await until(is_busy, "it says that it is busy")
        refused = await shop.refusal()
        assert (refused.why or "").startswith("it is busy with a script that does not end ("), refused
        assert (refused.remedy or "").startswith("SCRIPT KILL ends it"), refused
    finally:
        await shop.call("SCRIPT", "KILL")
        await asyncio.to_thread(somebody.join)
    await shop.nothing_was_done()


@pytest.mark.parametrize("shop", [(*SLOW_TO_LOAD, *ANSWERS_WHILE_LOADING)], indirect=True)
async def test_a_server_that_reads_its_data_from_disk(shop: Shop) -> None:
    for number in range(100):
        await shop.call("SET", f"other-{number}", "x" * 2_000)
    shop.server.process.stop()
    shop.server.process.launch()
    said: list[str] = []

    async def is_there() -> bool:
        try:
            return await shop.client.execute("PING") == b"PONG"
        except StockUnavailable as refused:
            said.append(refused.why or "")
            return False

    await until(is_there, "it has read them")
    loading = [why for why in said if why.startswith("it is reading its data from disk (")]
    assert loading, said


# --- who may what -----------------------------------------------------------------------------------------------------


Arrange = Callable[[Shop], Awaitable[str]]


async def _no_password(shop: Shop) -> str:
    await shop.call("ACL", "SETUSER", "default", "resetpass", ">right")
    return shop.server.url


async def _wrong_password(shop: Shop) -> str:
    await shop.call("ACL", "SETUSER", "anna", "on", ">right", "~*", "+@all")
    return shop.server.url.replace("://", "://anna:wrong@")


async def _needless_password(shop: Shop) -> str:
    return shop.server.url.replace("://", "://:needless@")


@pytest.mark.parametrize("arrange", [_no_password, _wrong_password, _needless_password])
async def test_a_user_or_password_that_is_not_right(shop: Shop, arrange: Arrange) -> None:
    client = RedisClient(await arrange(shop))
    with pytest.raises(StockRefused) as refused:
        await client.execute("EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "dg:x")
    assert (refused.value.why or "").startswith("it refuses the user or the password ("), refused.value
    assert refused.value.remedy == "correct them in DROPGATE_REDIS_URL"
    assert client.in_use == 0
    await client.close()


async def test_a_user_that_is_deleted_while_it_is_connected(shop: Shop) -> None:
    await shop.call("ACL", "SETUSER", "anna", "on", ">right", "~*", "+@all")
    client = RedisClient(shop.server.url.replace("://", "://anna:right@"))
    await client.execute("PING")
    await shop.call("ACL", "DELUSER", "anna")
    await until(lambda: _is_refused(client), "the next connection is refused")
    await client.close()


async def _is_refused(client: RedisClient) -> bool:
    try:
        await client.execute("PING")
    except StockRefused as refused:
        return (refused.why or "").startswith("it refuses the user or the password (")
    except StockUnavailable:
        return False
    return False


async def test_more_connections_than_the_server_takes(shop: Shop) -> None:
    await shop.client.execute("CONFIG", "SET", "maxclients", "1")
    late = RedisClient(shop.server.url, RedisOptions(connect_timeout_s=5.0))
    with pytest.raises(StockRefused) as refused:
        await late.execute("PING")
    assert (refused.value.why or "").startswith("it takes no more connections ("), refused.value
    assert refused.value.remedy == "raise its maxclients, or lower DROPGATE_REDIS_POOL_MAX"
    await shop.client.execute("CONFIG", "SET", "maxclients", "100")
    assert await late.execute("PING") == b"PONG"
    await late.close()
