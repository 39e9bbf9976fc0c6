"""What every way of selling offers to the harness."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Where a strategy sells: URLs as DROPGATE_REDIS_URL and DROPGATE_DATABASE_URL have them."""

    redis_url: str
    database_url: str


@dataclass(frozen=True, kw_only=True)
class Product:
    """What is sold. Its id is the same in SQL and in the names of its Redis keys."""

    id: int
    stock: int


def new_product(stock: int) -> Product:
    """Random, so that runs on the same servers do not meet."""
    return Product(id=secrets.randbits(48), stock=stock)


@dataclass(frozen=True, kw_only=True)
class Books:
    """`orders`: the buyers who have one. `units_taken`: what the stock counters say, never more than there were."""

    stock: int
    orders: frozenset[str]
    units_taken: int


class TooBusy(Exception):
    """A buyer lost its race for so long that it is sent away. It may have taken a unit where the strategy says so."""


class Strategy(Protocol):
    """Sells one product at a time. Any number of `buy` may run at once, in several processes too."""

    name: str
    summary: str
    """One sentence: how it decides, and what it guarantees."""
    product: Product | None

    async def prepare(self, stock: int) -> None:
        """Make a new product with this stock, and sell it."""

    async def join(self, product: Product) -> None:
        """Sell a product that another process has prepared."""

    async def buy(self, buyer: str) -> bool:
        """True: told "yours". False: told "sold out". TooBusy: told neither. A buyer buys once."""

    async def settle(self) -> None:
        """Return once whatever goes on behind has ended; nobody buys any more. TimeoutError: it does not end."""

    async def books(self) -> Books:
        """Of the product, once it is settled."""

    async def close(self) -> None:
        """Let go of the servers. Whoever prepared the product removes its Redis keys; rows stay, in `bench_` tables."""


class NoProduct(Exception):
    """Nothing is sold yet: `prepare` or `join` comes first."""


def sold_by(strategy: Strategy) -> Product:
    if strategy.product is None:
        raise NoProduct(f"{strategy.name} has no product: call prepare or join first")
    return strategy.product
