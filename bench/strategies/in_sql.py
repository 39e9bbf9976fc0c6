"""What the strategies share whose stock is a row: they differ in one attempt of one buyer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import assert_never

from sqlalchemy.exc import OperationalError

from bench.strategies.patience import Patience
from bench.strategies.sql import Shop
from bench.strategies.strategy import Books, Product, Stores, new_product, sold_by

MYSQL_LOST_RACE = frozenset({1020, 1205, 1213})
"""Record changed since it was read, lock wait time-out, deadlock: the transaction is undone and may be tried again."""


class Attempt(Enum):
    """How one attempt ended."""

    SOLD = auto()
    SOLD_OUT = auto()
    LOST_RACE = auto()


class InSql(ABC):
    """The stock is `bench_products.stock`; order and stock are written in one transaction."""

    name: str
    summary: str

    def __init__(self, stores: Stores) -> None:
        self.product: Product | None = None
        self.shop = Shop(stores.database_url)

    @abstractmethod
    async def attempt(self, product: Product, buyer: str) -> Attempt:
        """Once, in a transaction."""

    async def prepare(self, stock: int) -> None:
        product = new_product(stock)
        await self.shop.add(product)
        await self.join(product)

    async def join(self, product: Product) -> None:
        self.product = product

    async def buy(self, buyer: str) -> bool:
        product, patience = sold_by(self), Patience()
        while True:
            match await self._attempted(product, buyer):
                case Attempt.SOLD:
                    return True
                case Attempt.SOLD_OUT:
                    return False
                case Attempt.LOST_RACE:
                    await patience.pause()
                case never:
                    assert_never(never)

    async def settle(self) -> None:  # noqa: B027 - who has something going on behind overrides it
        """Nothing goes on behind: who is told has an order."""

    async def books(self) -> Books:
        product = sold_by(self)
        taken = product.stock - await self.shop.stock_left(product)
        return Books(stock=product.stock, orders=await self.shop.buyers(product), units_taken=taken)

    async def close(self) -> None:
        await self.shop.close()

    async def _attempted(self, product: Product, buyer: str) -> Attempt:
        try:
            return await self.attempt(product, buyer)
        except OperationalError as error:
            if _code(error) in MYSQL_LOST_RACE:
                return Attempt.LOST_RACE
            raise


def _code(error: OperationalError) -> object:
    return error.orig.args[0] if error.orig is not None and error.orig.args else None
