"""Optimistic: write only what nobody has changed since it was read."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from bench.strategies.in_sql import Attempt, InSql
from bench.strategies.sql import insert_orders, products
from bench.strategies.strategy import Product

READ = select(products.c.stock, products.c.version).where(products.c.id == bindparam("product_id"))
SWAP = (
    update(products)
    .where(products.c.id == bindparam("product_id"), products.c.version == bindparam("read"))
    .values(stock=products.c.stock - 1, version=products.c.version + 1)
)


class Optimistic(InSql):
    name = "optimistic"
    summary = (
        "Reads stock and version, writes if the version is still the same, else tries again after a random pause; "
        "never oversells, and most tries of a rush are in vain."
    )

    async def attempt(self, product: Product, buyer: str) -> Attempt:
        async with self.shop.transaction() as connection:
            row = (await connection.execute(READ, {"product_id": product.id})).one()
            if row.stock < 1:
                return Attempt.SOLD_OUT
            swapped = await connection.execute(SWAP, {"product_id": product.id, "read": row.version})
            if swapped.rowcount == 0:
                return Attempt.LOST_RACE
            await insert_orders(connection, product, [buyer])
            return Attempt.SOLD
