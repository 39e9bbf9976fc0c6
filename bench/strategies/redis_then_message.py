"""Deduct in Redis, then send a message; no transaction joins the two."""

from __future__ import annotations

from collections.abc import Sequence

from bench.strategies.in_redis import InRedis
from bench.strategies.message_queue import BACKLOG_MAX, MessageQueue
from bench.strategies.strategy import NoProduct, Product, Stores, sold_by


class RedisThenMessage(InRedis):
    """The broker is a queue in this process (message_queue.py), so the rate is an upper bound. A process that dies
    between deduct and message has taken a unit that no order will have. SQL has orders only, no stock of its own."""

    name = "redis_then_message"
    summary = (
        "A Lua script deducts, then a plain message (here a queue in the process: it costs nothing, so the rate is an "
        "upper bound) brings the order; does not oversell, but loses units and orders when a process dies in between."
    )

    def __init__(self, stores: Stores, backlog_max: int = BACKLOG_MAX) -> None:
        super().__init__(stores)
        self._backlog_max = backlog_max
        self._messages: MessageQueue | None = None

    async def join(self, product: Product) -> None:
        if self._messages is not None:
            await self._messages.close()
        await super().join(product)
        self._messages = MessageQueue(self.shop, product, self._backlog_max)

    async def buy(self, buyer: str) -> bool:
        if self._messages is None:
            raise NoProduct(f"{self.name} has no product: call prepare or join first")
        for key in self.keys_of(sold_by(self), buyer):
            if await self.counters.take(key):
                await self._messages.publish(buyer)
                return True
        return False

    def keys_of(self, product: Product, _buyer: str) -> Sequence[str]:
        """The counters to ask, in this order."""
        return self.counters.keys(product)

    async def settle(self) -> None:
        if self._messages is not None:
            await self._messages.finish()

    async def close(self) -> None:
        if self._messages is not None:
            await self._messages.close()
        await super().close()
