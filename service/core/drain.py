"""Whether older messages have had their turn with the order transaction: they come before new buyers (design §3.3)."""

from __future__ import annotations

import asyncio

from service.domain.sale import Authority, Sale
from service.ports.clock import Clock
from service.ports.messaging import Topic, Transport

LOOK_MS = 250
"""One look at the broker serves all sales of a turn."""
GAP_MS = 2_000
"""From the end of a look to the next: further apart they do not belong together, as what was between is not known."""


class Drain:
    def __init__(self, transport: Transport, order: Topic, clock: Clock, *, timeout_s: float) -> None:
        self._transport = transport
        self._order = order
        self._clock = clock
        self._timeout_ms = int(timeout_s * 1000)
        self._one_at_a_time = asyncio.Lock()
        self._looked_at_ms = self._looked_until_ms = 0
        self._empty_since_ms: int | None = None
        self._blind_ms = 0

    async def is_over(self, sale: Sale) -> bool:
        if sale.authority is not Authority.SQL or sale.older_deadline_ms is None:
            return True
        if self._clock.now_ms() >= sale.epoch_started_at_ms + self._timeout_ms:
            return True
        return await self._nothing_under_way(sale.epoch_started_at_ms)

    async def _nothing_under_way(self, since_ms: int) -> bool:
        """By looks that are fresh, and younger than the epoch: an older one knows nothing of what it left behind."""
        async with self._one_at_a_time:
            now_ms = self._clock.now_ms()
            if not max(since_ms, now_ms - LOOK_MS) < self._looked_at_ms <= now_ms:
                await self._look(now_ms)
            if self._empty_since_ms is None:
                return False
            return now_ms - max(since_ms, self._empty_since_ms) >= self._blind_ms

    async def _look(self, now_ms: int) -> None:
        backlog = await self._transport.backlog(self._order.name, self._order.group or "")
        goes_on = 0 <= now_ms - self._looked_until_ms <= GAP_MS
        empty = backlog.undelivered == 0 and not backlog.halves
        since_ms = self._empty_since_ms if goes_on and self._empty_since_ms is not None else now_ms
        self._empty_since_ms = since_ms if empty else None
        self._looked_at_ms, self._looked_until_ms = now_ms, self._clock.now_ms()
        self._blind_ms = int(backlog.blind_s * 1000)
