"""What a reservation costs in Redis: records, allowance, batch record; without the body, which goes with the order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.redis.client import RedisClient
from service.adapters.redis.stock import RedisStock
from service.domain.stock import Effect
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import candidates, count, load, new_slot, reserve

RESERVATIONS = 2_000
BYTES_MAX = {64: 400, 1: 480}
"""By batch size: a batch's own record weighs more on the small ones."""

pytestmark = pytest.mark.server


@pytest.mark.parametrize("flavour", ["valkey", "redis"])
@pytest.mark.parametrize("batch_size", sorted(BYTES_MAX))
async def test_a_live_reservation_takes_few_bytes(
    make_server: Callable[..., RealServer], flavour: str, batch_size: int, record_property: Callable[..., None]
) -> None:
    server = make_server(flavour)
    stock = RedisStock(RedisClient(server.url), ManualClock())
    slot = new_slot()
    await load(stock, slot, RESERVATIONS)
    await reserve(stock, slot, *candidates(slot, 1, prefix="first"))  # scripts are compiled
    before = used_memory(server)
    its = candidates(slot, RESERVATIONS - 1, prefix="customer-0000")
    for at in range(0, len(its), batch_size):
        part = its[at : at + batch_size]
        await reserve(stock, slot, *part)
        await stock.confirm(slot, {it.reservation_id: Effect.KEEP for it in part})
    bytes_each = (used_memory(server) - before) / len(its)
    record_property("bytes_each", bytes_each)
    print(f"{flavour}, batches of {batch_size}: {bytes_each:.0f} bytes a reservation")
    assert bytes_each < BYTES_MAX[batch_size]
    assert (await count(stock, slot)).ordered == len(its)
    await stock.close()


def used_memory(server: RealServer) -> int:
    """Of the data: connection buffers and the allocator's slack come and go."""
    server.call("MEMORY", "PURGE")
    stats = server.call("MEMORY", "STATS")
    return int(stats[stats.index(b"dataset.bytes") + 1])
