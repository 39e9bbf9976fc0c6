"""What the strategies share whose stock is in Redis; orders are rows of SQL all the same."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bench.strategies.redis_side import Counters, redis_on
from bench.strategies.sql import Shop
from bench.strategies.strategy import Books, Product, Stores, new_product, sold_by


class InRedis(ABC):
    """The stock is in one counter, or in several."""

    name: str
    summary: str
    segments = 1

    def __init__(self, stores: Stores) -> None:
        self.product: Product | None = None
        self.shop = Shop(stores.database_url)
        self.redis = redis_on(stores.redis_url)
        self.counters = Counters(self.redis, self.segments)
        self._prepared: Product | None = None

    @abstractmethod
    async def buy(self, buyer: str) -> bool: ...

    async def prepare(self, stock: int) -> None:
        product = new_product(stock)
        await self._remove_prepared()
        self._prepared = product
        await self.shop.add(product)
        await self.counters.fill(product)
        await self.join(product)

    async def join(self, product: Product) -> None:
        self.product = product

    async def settle(self) -> None:  # noqa: B027 - who has something going on behind overrides it
        """Nothing goes on behind: who is told has an order."""

    async def books(self) -> Books:
        product = sold_by(self)
        taken = product.stock - await self.counters.left(product)
        return Books(stock=product.stock, orders=await self.shop.buyers(product), units_taken=taken)

    async def close(self) -> None:
        await self._remove_prepared()
        await self.redis.aclose()
        await self.shop.close()

    async def _remove_prepared(self) -> None:
        if self._prepared is not None:
            await self.counters.remove(self._prepared)
