"""Pessimistic: lock the rows, then look."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.strategies.in_sql import Attempt, InSql
from bench.strategies.sql import insert_orders, products
from bench.strategies.strategy import Product

LOCK = (
    select(products.c.stock)
    .where(products.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(products.c.id)
    .with_for_update()
)
TAKE = update(products).where(products.c.id.in_(bindparam("ids", expanding=True))).values(stock=products.c.stock - 1)


class ForUpdate(InSql):
    """Rows are locked in the order of their ids: two baskets with the same products cannot wait for each other."""

    name = "for_update"
    summary = (
        "Locks the stock row by SELECT ... FOR UPDATE, then compares, writes and inserts the order in the same "
        "transaction; never oversells, and sells one at a time, a COMMIT each."
    )

    async def attempt(self, product: Product, buyer: str) -> Attempt:
        async with self.shop.transaction() as connection:
            if not await _take(connection, [product.id]):
                return Attempt.SOLD_OUT
            await insert_orders(connection, product, [buyer])
            return Attempt.SOLD


async def _take(connection: AsyncConnection, product_ids: Sequence[int]) -> bool:
    """One unit of each product, or of none."""
    ids = sorted(product_ids)
    stocks = (await connection.scalars(LOCK, {"ids": ids})).all()
    if len(stocks) < len(ids) or min(stocks) < 1:
        return False
    await connection.execute(TAKE, {"ids": ids})
    return True
