"""Time as a port: a test can jump fifteen minutes and run exactly one tick."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """UTC milliseconds since the epoch: what is stored and compared across processes."""

    def monotonic_s(self) -> float:
        """Seconds that never go back: ages and deadlines within this process."""

    def offset_ms(self) -> int:
        """What a script adds to Redis's own TIME to be on this clock: 0 outside tests."""

    async def sleep(self, seconds: float) -> None:
        """Wait this long on this clock."""
