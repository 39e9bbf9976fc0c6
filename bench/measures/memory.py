"""What a live reservation takes of Redis: all keys of its sale, by MEMORY USAGE, over the reservations in them."""

from __future__ import annotations

import redis.asyncio

from bench.stand.child import BenchFailed

SCAN = 1_000


async def redis_bytes(url: str, sale_id: str) -> int:
    """Of a sale: with every element looked at, not a sample. BenchFailed: it has no key there, which is no size."""
    client = redis.asyncio.Redis.from_url(url)
    try:
        found = [key async for key in client.scan_iter(match=f"dg:{{{sale_id}:*", count=SCAN)]
        taken = sum([int(await client.memory_usage(key, samples=0) or 0) for key in found])
    finally:
        await client.aclose()
    if not taken:
        raise BenchFailed(f"{sale_id} has no key in Redis: it has left, or the product names its keys otherwise")
    return taken
