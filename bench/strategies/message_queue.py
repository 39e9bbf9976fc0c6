"""A stand-in for a broker of plain messages: a bounded queue in this process, and a consumer that inserts orders.

A message costs nothing here: no network, no disk, no other process. What is measured over it is an upper bound of what
a real broker would allow.
"""

from __future__ import annotations

import asyncio

from bench.strategies.patience import PATIENCE_S
from bench.strategies.sql import Shop
from bench.strategies.strategy import Product, TooBusy

BACKLOG_MAX = 100_000
"""More than a run sells, so that accepting is not slowed down by inserting; and a few megabytes at most."""
BATCH_MAX = 128
"""Orders a transaction, as the product's `batch_max`."""
SETTLE_S = 300.0
"""A full backlog at 350 rows a second, far below any server's pace."""
CLOSE_S = 5.0


class MessageQueue:
    """Open until `finish` or `close`. A consumer that fails ends: `finish` raises what it died of."""

    def __init__(self, shop: Shop, product: Product, backlog_max: int) -> None:
        self._shop = shop
        self._product = product
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue(backlog_max)
        self._consumer = asyncio.create_task(self._consume(), name="bench: order consumer")

    async def publish(self, buyer: str) -> None:
        """Return once it is in the queue. TooBusy: the queue stays full."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._waiting.put(buyer)
        except TimeoutError:
            raise TooBusy(f"the queue is full for {PATIENCE_S:g} s; {buyer}'s unit is taken and has no order") from None

    async def finish(self) -> None:
        """Have all orders inserted, and end. TimeoutError: not within SETTLE_S."""
        async with asyncio.timeout(SETTLE_S):
            if not self._consumer.done():
                await self._waiting.put(None)
            await asyncio.shield(self._consumer)

    async def close(self) -> None:
        """End now; what waits is gone."""
        self._consumer.cancel()
        await asyncio.wait([self._consumer], timeout=CLOSE_S)

    async def _consume(self) -> None:
        open_ = True
        while open_:
            batch = [await self._waiting.get()]
            while len(batch) < BATCH_MAX and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            open_ = None not in batch
            buyers = [buyer for buyer in batch if buyer is not None]
            if buyers:
                await self._shop.insert_orders(self._product, buyers)
