"""A clock that stands still until a test moves it: fifteen minutes pass in one call."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time


class ManualClock:
    """Fulfils ports.clock.Clock. Whoever sleeps on it wakes, in order of time, when `advance` passes their moment."""

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._started_at_ms = self._now_ms
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return (self._now_ms - self._started_at_ms) / 1000

    def offset_ms(self) -> int:
        """Redis's own time goes on, so what is added to it is looked up at each call."""
        return self._now_ms - time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + round(seconds * 1000), next(self._order), woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many wait on this clock now."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let time pass, stopping at each sleeper on the way so that it sees its own moment."""
        until_ms = self._now_ms + round(seconds * 1000)
        while self._sleepers and self._sleepers[0][0] <= until_ms:
            due_ms, _, woken = heapq.heappop(self._sleepers)
            self._now_ms = max(self._now_ms, due_ms)
            if not woken.done():
                woken.set_result(None)
            await asyncio.sleep(0)
        self._now_ms = until_ms
        await asyncio.sleep(0)
