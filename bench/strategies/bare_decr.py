"""DECR and look at the sign."""

from __future__ import annotations

from bench.strategies.in_redis import InRedis
from bench.strategies.strategy import sold_by


class BareDecr(InRedis):
    """Each "sold out" takes the counter further below zero: a unit that is given back then is not sold again."""

    name = "bare_decr"
    summary = (
        "Redis DECR, sold if the result is not negative, and the order inserted afterwards; does not oversell, but a "
        "unit given back after the end is stranded, and a process that dies in between loses one."
    )

    async def buy(self, buyer: str) -> bool:
        product = sold_by(self)
        (key,) = self.counters.keys(product)
        if await self.redis.decr(key) < 0:
            return False
        await self.shop.insert_orders(product, [buyer])
        return True
