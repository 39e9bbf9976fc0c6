"""The keys of ended epochs leave Redis (design §3.3): owed in SQL from the change of authority on, and done here.

A full Redis that evicts nothing refuses every write, so a key that nobody will ever read again is not harmless.
"""

from __future__ import annotations

from service.core.apart import Apart
from service.domain.stock import slots_of
from service.observability import metrics
from service.ports.clock import Clock
from service.ports.orders import OwedUnlink, SaleStore
from service.ports.stock import Stock

EPOCHS_A_TURN = 100
LATE_MS = 600_000
"""An epoch is looked at again this long after it ended. A load call that was under way at its end may land after the
first look, and has no meta to be refused by: it lives as long as its time-out, and what the kernel still holds of a
connection that was given up for a few minutes more. A loader that sleeps longer owes that look itself (authority.py).
"""


class UnlinkSweep:
    def __init__(self, sales: SaleStore, stock: Stock, clock: Clock) -> None:
        self._sales = sales
        self._stock = stock
        self._clock = clock
        self._apart = Apart("unlink", clock)

    async def turn(self) -> int:
        """The number of epochs whose keys went."""
        resting = len(self._apart.resting())
        owed = await self._sales.owed_unlinks(self._clock.now_ms(), EPOCHS_A_TURN + resting)
        metrics.UNLINKS_OWED.set(len(owed))
        return await self._apart.each(owed, lambda it: (it.sale_id, it.epoch), self._unlink)

    async def _unlink(self, owed: OwedUnlink) -> int:
        for slot in slots_of(owed.sale_id, owed.epoch, owed.segments):
            await self._stock.unlink(slot)
        was_first_look = owed.due_at_ms == owed.ended_at_ms
        await self._sales.unlinked(owed, self._clock.now_ms() + LATE_MS if was_first_look else None)
        return 1
