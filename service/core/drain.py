"""Whether older messages have had their turn with the order transaction: they come before new buyers (design §3.3)."""

from __future__ import annotations

import asyncio

from service.domain.sale import Authority, Sale
from service.ports.clock import Clock
from service.ports.messaging import Topic, Transport

LOOK_MS = 250
"""One look at the broker serves all sales of a turn."""


class Drain:
    def __init__(self, transport: Transport, order: Topic, clock: Clock, *, timeout_s: float) -> None:
        self._transport = transport
        self._order = order
        self._clock = clock
        self._timeout_ms = int(timeout_s * 1000)
        self._one_at_a_time = asyncio.Lock()
        self._looked_at_ms = 0
        self._empty = False

    async def is_over(self, sale: Sale) -> bool:
        if sale.authority is not Authority.SQL or sale.older_deadline_ms is None:
            return True
        if self._clock.now_ms() >= sale.epoch_started_at_ms + self._timeout_ms:
            return True
        return await self._nothing_under_way(sale.epoch_started_at_ms)

    async def _nothing_under_way(self, since_ms: int) -> bool:
        """By a look that is fresh, and younger than the epoch: an older one knows nothing of what it left behind."""
        async with self._one_at_a_time:
            now_ms = self._clock.now_ms()
            if not max(since_ms, now_ms - LOOK_MS) < self._looked_at_ms <= now_ms:
                backlog = await self._transport.backlog(self._order.name, self._order.group or "")
                self._looked_at_ms, self._empty = now_ms, backlog.undelivered == 0 and not backlog.halves
            return self._empty
