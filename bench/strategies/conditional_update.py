"""One statement compares and takes: the best that a row of SQL can do for one buyer at a time."""

from __future__ import annotations

from sqlalchemy import bindparam, update

from bench.strategies.in_sql import Attempt, InSql
from bench.strategies.sql import insert_orders, products
from bench.strategies.strategy import Product

TAKE = (
    update(products)
    .where(products.c.id == bindparam("product_id"), products.c.stock >= 1)
    .values(stock=products.c.stock - 1)
)


class ConditionalUpdate(InSql):
    name = "conditional_update"
    summary = (
        "UPDATE ... SET stock = stock - 1 WHERE stock >= 1 and the order's INSERT in one transaction; never oversells "
        "and never loses an order, and every buyer waits for the COMMIT of the one before."
    )

    async def attempt(self, product: Product, buyer: str) -> Attempt:
        async with self.shop.transaction() as connection:
            taken = await connection.execute(TAKE, {"product_id": product.id})
            if taken.rowcount == 0:
                return Attempt.SOLD_OUT
            await insert_orders(connection, product, [buyer])
            return Attempt.SOLD
