"""How many calls are under way: a transport that closes lets them end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class UnderWay:
    def __init__(self) -> None:
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def until_none(self, within_s: float) -> None:
        """Or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()
