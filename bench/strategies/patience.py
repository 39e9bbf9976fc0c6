"""How long a buyer is kept, and how it waits for another try."""

from __future__ import annotations

import asyncio
import random

from bench.strategies.strategy import TooBusy

PATIENCE_S = 30.0
"""Longer than the worst wait of any strategy under the bench's load, so that a rate is not one of give-ups."""
PAUSE_S = 0.001
"""About one statement."""
PAUSE_MAX_S = 0.100
"""As long as redis-py's own Lock sleeps. With a fifth of it 64 buyers sold two fifths less under a lock (median of
three): their looking took the time of the one who had it."""


class Patience:
    """Of one buyer. Pauses are random, up to a limit that doubles: rivals that met once shall not meet again."""

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self._seconds = seconds
        self._ends_s = asyncio.get_running_loop().time() + seconds
        self._limit_s = PAUSE_S

    async def pause(self) -> None:
        if asyncio.get_running_loop().time() >= self._ends_s:
            raise TooBusy(f"lost each race for {self._seconds:g} s: fewer clients, or more patience")
        await asyncio.sleep(random.uniform(0, self._limit_s))
        self._limit_s = min(2 * self._limit_s, PAUSE_MAX_S)
