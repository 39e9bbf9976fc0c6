"""A master that Sentinels watch: found, followed, and never taken for the server that was loaded before (F42)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.redis.client import RedisClient, RedisOptions
from service.adapters.redis.stock import RedisStock
from service.domain.errors import StockRefused, StockUnavailable
from service.domain.stock import Lost, Slot
from tests.fixtures.stage_tools import until
from tests.fixtures.stock import candidate, count, load, new_slot, reserve
from tests.servers.redis7 import Redis
from tests.servers.sentinel import SERVICE, Sentinel, WatchedRedis

pytestmark = [pytest.mark.server, pytest.mark.faults]

QUICK = RedisOptions(timeout_s=0.5, connect_timeout_s=0.5, pool_wait_s=0.1)


class Shop:
    """A slot with ten units on the master, one of them sold; and the client, with a connection open."""

    def __init__(self, watched: WatchedRedis) -> None:
        self.watched = watched
        self.client = RedisClient(watched.url)
        self.stock = RedisStock(self.client, ManualClock())
        self.slot = new_slot()

    async def first_reply(self) -> object:
        """Of the slot's count: calls that were not done are repeated."""
        while True:
            try:
                return await self.stock.count(self.slot)
            except StockUnavailable:
                await asyncio.sleep(0.02)


@pytest.fixture
async def shop(watched_redis: WatchedRedis) -> AsyncIterator[Shop]:
    shop = Shop(watched_redis)
    await load(shop.stock, shop.slot, 10)
    await reserve(shop.stock, shop.slot, candidate(shop.slot))
    assert await asyncio.to_thread(watched_redis.first.call, "WAIT", 1, 5_000) == 1
    yield shop
    await shop.stock.close()


async def _lost_at(shop: Shop, server: Redis) -> Lost:
    ids = server.call("INFO", "server").get("run_id")
    found = await shop.stock.server_ids(shop.slot)
    assert found.run_id == ids
    return Lost(found=found)


# --- failover ---------------------------------------------------------------------------------------------------------


async def test_a_failover_that_an_operator_asks_for_is_lost_to_the_next_who_asks_who_it_is(shop: Shop) -> None:
    """The old master goes on as one for seconds, in its epoch, for whoever is connected: the leader asks afresh."""
    assert (await count(shop.stock, shop.slot)).available == 9
    await asyncio.to_thread(shop.watched.fail_over)
    lost = await _lost_at(shop, shop.watched.master())
    assert await shop.first_reply() == lost
    assert shop.watched.master().call("HGET", _stock_key(shop.slot), "available") == b"9", "all had arrived there"


async def test_a_killed_masters_successor_is_lost_to_the_very_first_call(shop: Shop) -> None:
    old, new = shop.watched.master(), shop.watched.replica()
    await asyncio.to_thread(old.kill)
    began = time.monotonic()
    first = await shop.first_reply()
    print(f"answers after {time.monotonic() - began:.1f} s")
    assert first == await _lost_at(shop, new)
    await asyncio.to_thread(shop.watched.wait_for_master, new.port)


async def test_a_connection_to_a_demoted_master_is_dropped_by_its_first_read_only_answer(shop: Shop) -> None:
    old, new = shop.watched.master(), shop.watched.replica()
    await asyncio.to_thread(shop.watched.fail_over)
    await asyncio.to_thread(old.call, "REPLICAOF", "127.0.0.1", new.port)
    with pytest.raises(StockRefused, match="it is a replica, which takes no writes"):
        await shop.stock.unlink(shop.slot)
    assert new.call("EXISTS", _stock_key(shop.slot)) == 1
    await shop.stock.unlink(shop.slot)
    assert new.call("EXISTS", _stock_key(shop.slot)) == 0


async def test_lost_is_not_believed_of_a_demoted_master(shop: Shop) -> None:
    """What it finds is reported with its ids: those of a server that the leader does not see would be an alarm."""
    old, new = shop.watched.master(), shop.watched.replica()
    await count(shop.stock, shop.slot)
    await asyncio.sleep(0.6)  # the connection is no fresh one any more
    await asyncio.to_thread(shop.watched.fail_over)
    await asyncio.to_thread(old.call, "REPLICAOF", "127.0.0.1", new.port)
    await until(lambda: _follows(old, new), "the old master is a replica of the new one")
    lost = await shop.stock.count(shop.slot)
    assert isinstance(lost, Lost)
    assert lost.found.run_id == new.call("INFO", "server")["run_id"]


async def test_one_sentinel_that_answers_is_enough_and_is_not_waited_for(shop: Shop) -> None:
    first, second, _ = shop.watched.sentinels
    await asyncio.to_thread(first.kill)
    second.process.send(signal.SIGSTOP)
    client = RedisClient(shop.watched.url, QUICK)
    began = time.monotonic()
    assert await client.healthy()
    assert time.monotonic() - began < QUICK.connect_timeout_s
    await client.close()
    second.process.send(signal.SIGCONT)


async def _follows(replica: Redis, master: Redis) -> bool:
    its, ours = master.call("INFO", "replication"), replica.call("INFO", "replication")
    return bool(its["master_replid"] == ours["master_replid"])


def _stock_key(slot: Slot) -> str:
    return f"dg:{{{slot.sale_id}:0}}:{slot.epoch}:stock"


# --- what is wrong, and the remedy ------------------------------------------------------------------------------------


@pytest.fixture
def master(make_redis7: Callable[..., Redis]) -> Redis:
    return make_redis7()


async def _refusal(url: str, options: RedisOptions = QUICK) -> StockRefused:
    """Of a call, within its budget."""
    client = RedisClient(url, options)
    began = time.monotonic()
    with pytest.raises(StockRefused) as refused:
        await client.execute("PING")
    assert time.monotonic() - began < options.budget_s
    assert client.in_use == 0
    await client.close()
    return refused.value


async def test_a_service_that_they_do_not_watch(master: Redis, make_sentinel: Callable[..., Sentinel]) -> None:
    sentinel = make_sentinel(master.port)
    error = await _refusal(f"redis+sentinel://{sentinel.address}/hats")
    assert error.why == f"no Sentinel names a master of 'hats' ({sentinel.address}: it watches '{SERVICE}')"
    assert error.remedy == "correct the service in DROPGATE_REDIS_URL"


async def test_nobody_is_there(make_redis7: Callable[..., Redis]) -> None:
    error = await _refusal("redis+sentinel://127.0.0.1:1,127.0.0.1:2/shoes")
    assert error.why is not None
    assert error.why.startswith("no Sentinel names a master of 'shoes' (")
    for said in ("127.0.0.1:1: Error 111", "127.0.0.1:2: Error 111"):
        assert said in error.why
    assert error.remedy == "look at the Sentinels and at the network to them"


async def test_they_are_silent(master: Redis, make_sentinel: Callable[..., Sentinel]) -> None:
    sentinel = make_sentinel(master.port)
    sentinel.process.send(signal.SIGSTOP)
    error = await _refusal(sentinel.url)
    assert error.why == f"no Sentinel names a master of 'shoes' ({sentinel.address}: no answer within 0.5 s)"
    sentinel.process.send(signal.SIGCONT)


async def test_they_are_a_redis(master: Redis) -> None:
    error = await _refusal(f"redis+sentinel://127.0.0.1:{master.port}/shoes")
    assert error.why is not None
    assert "it is no Sentinel" in error.why
    assert error.remedy == "name the Sentinels in DROPGATE_REDIS_URL, as a rule on port 26379"


@pytest.mark.parametrize(
    ("lines", "right"),
    [
        (["requirepass secret"], RedisOptions(sentinel_password="secret")),
        (
            ["user default off", "user dropgate on >secret -@all +auth +sentinel|get-master-addr-by-name"],
            RedisOptions(sentinel_username="dropgate", sentinel_password="secret"),
        ),
    ],
)
async def test_they_want_to_know_who_asks(
    master: Redis, make_sentinel: Callable[..., Sentinel], lines: list[str], right: RedisOptions
) -> None:
    sentinel = make_sentinel(master.port, *lines)
    for wrong in (QUICK, RedisOptions(sentinel_username="dropgate", sentinel_password="guessed")):
        error = await _refusal(sentinel.url, wrong)
        assert error.why is not None
        assert "it refuses the user or the password" in error.why
        assert error.remedy == "correct DROPGATE_REDIS_SENTINEL_USERNAME and DROPGATE_REDIS_SENTINEL_PASSWORD"
    client = RedisClient(sentinel.url, right)
    assert await client.execute("PING") == b"PONG"
    await client.close()


async def test_redis_itself_wants_another_user(master: Redis, make_sentinel: Callable[..., Sentinel]) -> None:
    """The URL's user is Redis's, not the Sentinels'."""
    sentinel = make_sentinel(master.port)
    master.call("ACL", "SETUSER", "anna", "on", ">right", "~*", "+@all")
    error = await _refusal(sentinel.url.replace("://", "://anna:wrong@"))
    assert error.why is not None
    assert error.why.startswith("it refuses the user or the password (")
    assert error.remedy == "correct them in DROPGATE_REDIS_URL"
    client = RedisClient(sentinel.url.replace("://", "://anna:right@"))
    assert await client.execute("ACL", "WHOAMI") == b"anna"
    await client.close()


async def test_the_master_that_they_name_is_away(master: Redis, make_sentinel: Callable[..., Sentinel]) -> None:
    sentinel = make_sentinel(master.port)
    await asyncio.to_thread(master.kill)
    error = await _refusal(sentinel.url)
    assert error.why is not None
    assert f"connecting to 127.0.0.1:{master.port}" in error.why


async def test_the_master_that_they_name_is_a_replica(
    master: Redis, make_redis7: Callable[..., Redis], make_sentinel: Callable[..., Sentinel]
) -> None:
    replica = make_redis7("--replicaof", "127.0.0.1", str(master.port))
    sentinel = make_sentinel(replica.port)
    error = await _refusal(sentinel.url)
    assert error.why == f"the Sentinels name 127.0.0.1:{replica.port} as the master, and its role is slave"
    assert error.remedy == "it passes with the failover; if it does not, look at the Sentinels"
