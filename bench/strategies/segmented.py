"""The stock in several counters, so that several Redis nodes can share the rush."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from bench.strategies.redis_then_message import RedisThenMessage
from bench.strategies.strategy import Product


class Segmented(RedisThenMessage):
    """On one Redis there is nothing to win: each "sold out" asks all segments."""

    name = "segmented"
    summary = (
        "Stock split over 8 Redis counters, a buyer asks its home one first and the others when that is empty, then "
        "as redis_then_message (same queue, same upper bound, same losses); does not oversell, leaves no unit unsold."
    )
    segments = 8

    def keys_of(self, product: Product, buyer: str) -> Sequence[str]:
        keys = self.counters.keys(product)
        home = crc32(buyer.encode()) % len(keys)
        return [*keys[home:], *keys[:home]]
