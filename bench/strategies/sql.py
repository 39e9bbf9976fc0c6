"""The SQL side of every strategy: a stock row, and an order row as the durable result of a sale.

The engine is set up as the product's own (service/adapters/sql/database.py), so that a difference in figures is one of
strategies: InnoDB, READ COMMITTED, the same session, 8 connections.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateTable, DropTable

from bench.strategies.patience import PATIENCE_S
from bench.strategies.strategy import Product
from service.adapters.sql.database import MYSQL_RECYCLE_S, MYSQL_SESSION, with_driver

POOL_MAX = 8
"""As the product's `sql_pool_max`."""
CONNECT_TIMEOUT_S = 10
BUYER_BYTES = 64

metadata = MetaData()


def _table(name: str, *columns: Column[int] | Column[str]) -> Table:
    return Table(name, metadata, *columns, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


products = _table(
    "bench_products",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("stock", Integer, nullable=False),
    Column("version", Integer, nullable=False),
)
orders = _table(
    "bench_orders",
    Column("product_id", BigInteger, primary_key=True, autoincrement=False),
    Column("buyer", String(BUYER_BYTES), primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
)

NEW_ORDERS = insert(orders)


class Shop:
    """One database with the two tables. What a transaction raises is SQLAlchemy's."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Committed at the end, rolled back by an error."""
        async with self._engine.begin() as connection:
            yield connection

    async def add(self, product: Product) -> None:
        """Make the tables if they are not there, and the product's row."""
        async with self.transaction() as connection:
            for table in metadata.sorted_tables:
                await connection.execute(CreateTable(table, if_not_exists=True))
            await connection.execute(insert(products), {"id": product.id, "stock": product.stock, "version": 0})

    async def stock_left(self, product: Product) -> int:
        async with self.transaction() as connection:
            left = await connection.scalar(select(products.c.stock).where(products.c.id == product.id))
        return int(left or 0)

    async def buyers(self, product: Product) -> frozenset[str]:
        """Who has an order."""
        async with self.transaction() as connection:
            found = await connection.scalars(select(orders.c.buyer).where(orders.c.product_id == product.id))
            return frozenset(found)

    async def insert_orders(self, product: Product, buyers: Sequence[str]) -> None:
        async with self.transaction() as connection:
            await insert_orders(connection, product, buyers)

    async def close(self) -> None:
        await self._engine.dispose()


async def remove_tables(url: str) -> None:
    """With the rows of every product. For who is alone on this database."""
    engine = _engine(url)
    try:
        async with engine.begin() as connection:
            for table in metadata.sorted_tables:
                await connection.execute(DropTable(table, if_exists=True))
    finally:
        await engine.dispose()


async def insert_orders(connection: AsyncConnection, product: Product, buyers: Sequence[str]) -> None:
    """One statement."""
    now_ms = time.time_ns() // 1_000_000
    rows = [{"product_id": product.id, "buyer": buyer, "created_at_ms": now_ms} for buyer in buyers]
    await connection.execute(NEW_ORDERS, rows)


def _engine(url: str) -> AsyncEngine:
    parsed = with_driver(url)
    if parsed.get_backend_name() != "mysql":
        raise ValueError(f"the strategies lock rows of MySQL or MariaDB; {parsed.get_backend_name()} has none")
    quietly = f"{MYSQL_SESSION}, sql_notes = 0"  # or "the table is there" is a warning
    return create_async_engine(
        parsed,
        isolation_level="READ COMMITTED",
        pool_size=POOL_MAX,
        max_overflow=0,
        pool_timeout=PATIENCE_S,
        pool_recycle=MYSQL_RECYCLE_S,
        pool_pre_ping=True,
        connect_args={"charset": "utf8mb4", "connect_timeout": CONNECT_TIMEOUT_S, "init_command": quietly},
    )
