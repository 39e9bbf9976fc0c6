"""What a live reservation takes of Redis: all keys of its sale, by MEMORY USAGE, over the reservations in them."""

from __future__ import annotations

import redis.asyncio

SCAN = 1_000


async def redis_bytes(url: str, sale_id: str) -> int:
    """Of a sale: with every element looked at, not a sample."""
    client = redis.asyncio.Redis.from_url(url)
    try:
        found = [key async for key in client.scan_iter(match=f"dg:{{{sale_id}:*", count=SCAN)]
        return sum([int(await client.memory_usage(key, samples=0) or 0) for key in found])
    finally:
        await client.aclose()
