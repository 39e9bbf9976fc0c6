"""The clock of the machine: what every process runs on outside tests."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Fulfils ports.clock.Clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def offset_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
