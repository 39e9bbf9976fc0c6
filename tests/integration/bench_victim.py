"""A process that sells by redis_then_message until it is killed:
`python -m tests.integration.bench_victim PRODUCT_ID STOCK REDIS_URL DATABASE_URL`.

It has room for MESSAGES messages. Prints each buyer as it is told "yours".
"""

from __future__ import annotations

import asyncio
import sys

from bench.strategies.redis_then_message import RedisThenMessage
from bench.strategies.strategy import Product, Stores

MESSAGES = 8
BUYERS = 20


async def main(product_id: int, stock: int, redis_url: str, database_url: str) -> None:
    strategy = RedisThenMessage(Stores(redis_url=redis_url, database_url=database_url), backlog_max=MESSAGES)
    await strategy.join(Product(id=product_id, stock=stock))
    async with asyncio.TaskGroup() as group:
        for number in range(BUYERS):
            group.create_task(_buyer(strategy, f"anna-{number}"))


async def _buyer(strategy: RedisThenMessage, name: str) -> None:
    if await strategy.buy(name):
        print(name, flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
