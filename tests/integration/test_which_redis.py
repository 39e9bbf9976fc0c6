"""Real servers that restart, forget, follow and are promoted: the very next call sees it (design §3.3, F42, F44)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.redis.client import RedisClient
from service.adapters.redis.keys import key
from service.adapters.redis.stock import RedisStock
from service.domain.errors import StockUnavailable
from service.domain.stock import BatchRecord, Effect, LoadRefused, Lost, Slot
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import batch, candidate, count, load, new_slot, reserve

pytestmark = [pytest.mark.server, pytest.mark.faults]


@dataclass
class Shop:
    """A server with a loaded slot, and the stock on it."""

    server: RealServer
    client: RedisClient
    stock: RedisStock
    slot: Slot

    async def restart(self) -> None:
        """The first call afterwards may still meet the old connection, and is then in doubt like any other."""
        self.server.restart()
        while not await self.client.healthy():
            pass


@pytest.fixture(params=["valkey", "redis"])
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def shop(make_server: Callable[..., RealServer], flavour: str) -> AsyncIterator[Shop]:
    server = make_server(flavour, "--appendonly", "yes", "--repl-diskless-sync-delay", "0")
    client = RedisClient(server.url)
    stock = RedisStock(client, ManualClock())
    slot = new_slot()
    await load(stock, slot, 10)
    yield Shop(server, client, stock, slot)
    await stock.close()


async def is_lost(shop: Shop, stock: RedisStock | None = None) -> bool:
    """Whether every kind of call is lost here, and changes nothing."""
    stock = stock or shop.stock
    slot, anna = shop.slot, candidate(shop.slot, "late")
    message = batch(slot, anna)
    replies = [
        await stock.peek(slot, [anna], 1),
        await stock.reserve(slot, message, 1),
        await stock.resolve(slot, message.batch_id),
        await stock.batches(slot, [message.batch_id]),
        await stock.end(slot, {anna.reservation_id: Effect.RETURN}),
        await stock.adjust(slot, "more", 1),
        await stock.count(slot),
    ]
    found = await stock.server_ids(slot)
    return replies == [Lost(found=found)] * len(replies)


async def test_a_restarted_server_is_lost(shop: Shop) -> None:
    await reserve(shop.stock, shop.slot, candidate(shop.slot))
    await shop.restart()
    assert shop.server.call("HGET", key(shop.slot, "stock"), "available") == b"9"
    assert await is_lost(shop)


async def test_flushall_is_lost(shop: Shop) -> None:
    shop.server.call("FLUSHALL")
    assert await is_lost(shop)


async def test_a_promoted_replica_is_lost(shop: Shop, make_server: Callable[..., RealServer], flavour: str) -> None:
    replica = make_server(flavour)
    replica.follow(shop.server)
    there = RedisStock(RedisClient(replica.url), ManualClock())
    assert await is_lost(shop, there)
    replica.follow(None)
    assert replica.call("HGET", key(shop.slot, "stock"), "available") == b"10"
    assert await is_lost(shop, there)
    await there.close()


async def test_a_resynced_replica_that_is_promoted_again_is_lost(
    shop: Shop, make_server: Callable[..., RealServer], flavour: str
) -> None:
    """It keeps its run_id, and gets its own stamp back with older stock: only the replication id tells."""
    other = make_server(flavour, "--repl-diskless-sync-delay", "0")
    other.follow(shop.server)
    shop.slot = replace(shop.slot, epoch=2)  # a master's first replica changes its replication id
    await load(shop.stock, shop.slot, 10)
    other.wait_for_copy_of(shop.server)
    other.follow(None)
    before = await shop.stock.server_ids(shop.slot)
    await reserve(shop.stock, shop.slot, candidate(shop.slot))
    shop.server.follow(other)
    shop.server.follow(None)
    after = await shop.stock.server_ids(shop.slot)
    assert shop.server.call("HGET", key(shop.slot, "stock"), "available") == b"10"
    assert shop.server.call("HGET", key(shop.slot, "meta"), "run_id").decode() == after.run_id == before.run_id
    assert after.replid != before.replid
    assert await is_lost(shop)


async def test_a_first_replica_costs_a_needless_rebuild(
    shop: Shop, make_server: Callable[..., RealServer], flavour: str
) -> None:
    """The master takes a new replication id for it. Safe; attach replicas before a sale is warmed."""
    make_server(flavour).follow(shop.server)
    assert await is_lost(shop)
    shop.slot = replace(shop.slot, epoch=2)
    await load(shop.stock, shop.slot, 10)
    make_server(flavour).follow(shop.server)
    assert (await count(shop.stock, shop.slot)).available == 10


async def test_a_demoted_master_decides_nothing(
    shop: Shop, make_server: Callable[..., RealServer], flavour: str
) -> None:
    other = make_server(flavour, "--repl-diskless-sync-delay", "0")
    shop.server.follow(other)
    assert await is_lost(shop)
    server = await shop.stock.server_ids(shop.slot)
    with pytest.raises(StockUnavailable, match="read only replica"):
        await load(shop.stock, replace(shop.slot, epoch=2), 10, server=server)


async def test_a_load_that_straddles_a_restart_is_refused(shop: Shop) -> None:
    slot = replace(shop.slot, epoch=2)
    server = await shop.stock.server_ids(slot)
    await shop.stock.load_stock(slot, server, available=10, buyer_units={}, held=0)
    await shop.restart()
    refusal = await shop.stock.stamp(slot, server, now_ms=1)
    assert refusal == LoadRefused(found=await shop.stock.server_ids(slot), stamped=False)
    assert isinstance(await shop.stock.count(slot), Lost)


async def test_memory_that_is_full_refuses_before_anything_is_written(shop: Shop) -> None:
    shop.server.call("CONFIG", "SET", "maxmemory", 1)
    anna = candidate(shop.slot)
    message = batch(shop.slot, anna)
    with pytest.raises(StockUnavailable, match="maxmemory"):
        await shop.stock.reserve(shop.slot, message, 1)
    shop.server.call("CONFIG", "SET", "maxmemory", 0)
    assert (await count(shop.stock, shop.slot)).available == 10
    await shop.stock.reserve(shop.slot, message, 1)
    assert await shop.stock.resolve(shop.slot, message.batch_id) == BatchRecord(
        winners=frozenset({anna.reservation_id})
    )
