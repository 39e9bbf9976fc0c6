"""Turns at a sale's row: one that is stuck costs a process two connections, and not all that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from service.domain.ids import SaleId

AT_ONCE = 2
"""Transactions of one process at one sale's row: one that holds it, and one that waits at the database for the moment
it is free. More would only wait there, too, each with a connection that other sales need."""


@dataclass
class _Queue:
    users: int = 0
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))


class SaleTurns:
    """First come, first served. How long one waits is the caller's deadline; how many wait is the callers' bound."""

    def __init__(self) -> None:
        self._queues: dict[SaleId, _Queue] = {}

    @property
    def idle(self) -> bool:
        """Nobody is at any sale's row, or waits for one."""
        return not self._queues

    @asynccontextmanager
    async def of(self, sale_ids: Iterable[SaleId]) -> AsyncIterator[None]:
        """A turn at each of these, in the order in which everybody takes them."""
        async with AsyncExitStack() as stack:
            for sale_id in sorted(set(sale_ids)):
                await stack.enter_async_context(self._at(sale_id))
            yield

    @asynccontextmanager
    async def _at(self, sale_id: SaleId) -> AsyncIterator[None]:
        queue = self._queues.setdefault(sale_id, _Queue())
        queue.users += 1
        try:
            async with queue.slots:
                yield
        finally:
            queue.users -= 1
            if queue.users == 0:
                del self._queues[sale_id]
