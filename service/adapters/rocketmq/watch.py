"""One background task for all clients of a transport, also for those to come: it fails when the keeper of one does."""

from __future__ import annotations

import asyncio


class Watch:
    def __init__(self) -> None:
        self._failed: asyncio.Future[None] | None = None

    def start(self, name: str) -> asyncio.Task[None]:
        self._failed = asyncio.get_running_loop().create_future()
        return asyncio.create_task(self._wait(self._failed), name=name)

    def over(self, keeper: asyncio.Task[None]) -> None:
        """From now on: one that ends by itself is a fault."""
        keeper.add_done_callback(self._ended)

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        if keeper.cancelled() or self._failed is None or self._failed.done():
            return
        self._failed.set_exception(keeper.exception() or AssertionError("a client's keeper ended by itself"))

    async def _wait(self, failed: asyncio.Future[None]) -> None:
        await failed
