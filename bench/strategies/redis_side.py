"""The Redis side: a client, scripts from their files, and stock as counters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redis.asyncio import BlockingConnectionPool, Redis

from bench.strategies.patience import PATIENCE_S
from bench.strategies.strategy import Product

POOL_MAX = 256
"""One for each client of the bench: redis-py's pool is not fair, and with 32 for 64 some waited for the whole run."""
LUA = Path(__file__).with_name("lua")


def redis_on(url: str) -> Redis:
    """Who finds all connections taken waits for one. The deadline of a call is the harness's, one for a whole `buy`."""
    return Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=POOL_MAX, timeout=PATIENCE_S))


def lua(name: str) -> str:
    return (LUA / f"{name}.lua").read_text(encoding="utf-8")


class Counters:
    """The stock of one product, in one counter a segment. Each has a hash tag of its own: no script spans two."""

    def __init__(self, redis: Redis, segments: int) -> None:
        self._redis = redis
        self._segments = segments
        self._take = redis.register_script(lua("take"))

    def keys(self, product: Product) -> Sequence[str]:
        return [f"bench:{{{product.id}-{segment}}}:stock" for segment in range(self._segments)]

    async def fill(self, product: Product) -> None:
        for key, units in zip(self.keys(product), shares(product.stock, self._segments), strict=True):
            await self._redis.set(key, units)

    async def take(self, key: str) -> bool:
        return bool(await self._take(keys=[key]))

    async def left(self, product: Product) -> int:
        """A counter below zero has nothing."""
        found = [await self._redis.get(key) for key in self.keys(product)]
        return sum(max(0, int(units or 0)) for units in found)

    async def remove(self, product: Product) -> None:
        for key in self.keys(product):
            await self._redis.unlink(key)


def shares(stock: int, segments: int) -> Sequence[int]:
    """As even as whole units allow; the first ones have what is left over."""
    each, over = divmod(stock, segments)
    return [each + (segment < over) for segment in range(segments)]
