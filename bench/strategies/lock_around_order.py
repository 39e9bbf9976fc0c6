"""A Redis lock around the naive way: the one most often found in tutorials."""

from __future__ import annotations

import secrets

from bench.strategies.in_sql import Attempt
from bench.strategies.naive import Naive
from bench.strategies.redis_side import lua, redis_on
from bench.strategies.strategy import Product, Stores

LOCK_MS = 10_000
"""Many times what one sale takes. A holder that is paused for longer shares the stock with the next."""


class LockAroundOrder(Naive):
    """SET NX PX with a token of the holder's own; released by compare-and-delete, so nobody frees another's lock."""

    name = "lock_around_order"
    summary = (
        "Takes a Redis lock (SET NX PX), reads, compares and writes stock and order in SQL, and releases it; "
        "oversells only where a holder outlives its lock, and sells one at a time."
    )

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self._redis = redis_on(stores.redis_url)
        self._release = self._redis.register_script(lua("release"))

    async def attempt(self, product: Product, buyer: str) -> Attempt:
        key, token = f"bench:{product.id}:lock", secrets.token_hex(16)
        if not await self._redis.set(key, token, nx=True, px=LOCK_MS):
            return Attempt.LOST_RACE
        try:
            return await super().attempt(product, buyer)
        finally:
            await self._release(keys=[key], args=[token])

    async def close(self) -> None:
        await self._redis.aclose()
        await super().close()
