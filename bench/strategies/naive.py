"""Read, compare, write: what a shop does before its first rush."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from bench.strategies.in_sql import Attempt, InSql
from bench.strategies.sql import insert_orders, products
from bench.strategies.strategy import Product

READ = select(products.c.stock).where(products.c.id == bindparam("product_id"))
WRITE = update(products).where(products.c.id == bindparam("product_id")).values(stock=bindparam("left"))


class Naive(InSql):
    """In one transaction, which does not help: two that read the same stock both write one less."""

    name = "naive"
    summary = "Reads the stock, compares it, writes one less and inserts the order; guarantees nothing: it oversells."

    async def attempt(self, product: Product, buyer: str) -> Attempt:
        async with self.shop.transaction() as connection:
            stock = await connection.scalar(READ, {"product_id": product.id})
            if not stock:
                return Attempt.SOLD_OUT
            await connection.execute(WRITE, {"product_id": product.id, "left": stock - 1})
            await insert_orders(connection, product, [buyer])
            return Attempt.SOLD
