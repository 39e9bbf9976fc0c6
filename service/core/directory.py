"""This process's view of the sale rows (design §3.3): read every 0.5 s, and not trusted when older than 2 s."""

from __future__ import annotations

import asyncio
import math

from service.domain.errors import NotFound, StoreUnavailable, Unavailable
from service.domain.ids import SaleId
from service.domain.sale import Authority, Sale, SaleStatus, ServerIds
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import error, warn
from service.ports.clock import Clock
from service.ports.orders import SALES_MAX, SALES_READ_MAX, SaleStore

REFRESH_S = 0.5
STALE_S = 2.0
LOOK_AGAIN_S = 0.1
"""Between two reads for sales that the view does not have: ids that nobody knows cost a process ten reads a second."""


class SaleDirectory:
    def __init__(self, store: SaleStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._sales: dict[SaleId, Sale] = {}
        self._read_at_s: float | None = None
        self._said_too_many = 0
        self._looking = asyncio.Lock()
        self._next_look: asyncio.Task[None] | None = None
        self._looked_at_s = -math.inf
        self._shut: dict[tuple[SaleId, int], float] = {}
        """Sales by epoch that this process found lost, and when their report was in the row."""

    async def refresh(self) -> None:
        """One good read. Its age counts from its beginning: what it saw may be as old as that."""
        began_s = self._clock.monotonic_s()
        sales = await self._store.view()
        if self._read_at_s is not None and self._read_at_s > began_s:
            return  # one that began later was quicker: what this one saw is older
        known, self._sales = self._sales, {sale.id: sale for sale in sales}
        self._read_at_s = began_s
        self._shut = {key: at_s for key, at_s in self._shut.items() if self._is_shut_by(key, at_s, began_s)}
        for sale in sales:
            if sale.id not in known or known[sale.id].epoch != sale.epoch:
                metrics.EPOCH.labels(sale.id).set(sale.epoch)
        self._count(sum(sale.status is not SaleStatus.SETTLED for sale in sales))

    async def look_again(self) -> None:
        """For a sale that the view does not have: it may be younger. Returns after a read that began after this call.

        All who ask before it begins share it. StoreUnavailable as `refresh`."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_again(), name="look for a sale")
            self._next_look.add_done_callback(_is_heard)
        await asyncio.shield(self._next_look)

    async def _look_again(self) -> None:
        async with self._looking:
            await self._clock.sleep(max(0.0, self._looked_at_s + LOOK_AGAIN_S - self._clock.monotonic_s()))
            self._next_look, self._looked_at_s = None, self._clock.monotonic_s()
            await self.refresh()

    def _count(self, unsettled: int) -> None:
        """Said at each growth: beyond what a process reads, sales are 404 here and have no road to Redis."""
        metrics.SALES.set(unsettled)
        if unsettled > max(SALES_MAX, self._said_too_many):
            error(Action.TOO_MANY_SALES, sales=unsettled, read=SALES_READ_MAX)
        self._said_too_many = unsettled

    def _is_shut_by(self, key: tuple[SaleId, int], reported_at_s: float, read_at_s: float) -> bool:
        """Until the epoch is over, or the leader has dismissed the report: whoever is still misrouted reports again."""
        sale = self._sales.get(key[0])
        if sale is None or sale.epoch != key[1]:
            return False
        return sale.lost is not None or reported_at_s >= read_at_s

    @property
    def is_fresh(self) -> bool:
        return self._read_at_s is not None and self._clock.monotonic_s() - self._read_at_s <= STALE_S

    def all(self) -> tuple[Sale, ...]:
        return tuple(self._sales.values())

    def selling(self, sale_id: SaleId) -> Sale:
        """The sale, from a view that is fresh enough to sell by. NotFound, or Unavailable where the view is too old."""
        if not self.is_fresh:
            raise Unavailable("sale rows", "they could not be read for over 2 s")
        sale = self._sales.get(sale_id)
        if sale is None:
            raise NotFound("sale", sale_id)
        if (sale.id, sale.epoch) in self._shut:
            raise Unavailable("stock", "Redis is being rebuilt")
        return sale

    def still_sells(self, sale: Sale) -> bool:
        """Whether the view is fresh, and shows the authority and epoch that this sale was sold by."""
        seen = self._sales.get(sale.id)
        return self.is_fresh and seen is not None and (seen.authority, seen.epoch) == (sale.authority, sale.epoch)

    async def current(self, sale_id: SaleId) -> Sale:
        """The sale as its row is now: for whoever decides by authority and epoch rather than sells."""
        sale = await self._store.sale(sale_id)
        if sale is None:
            raise NotFound("sale", sale_id)
        return sale

    async def report_lost(self, sale: Sale, found: ServerIds) -> None:
        """Shut this process's gate at once, and tell the leader through the row, where it is sticky.

        Only under `redis`: before its stamp a slot that is being loaded is unknown, too, and not lost.
        """
        key = (sale.id, sale.epoch)
        if sale.authority is not Authority.REDIS or key in self._shut:
            return
        self._shut[key] = math.inf
        metrics.LOSS_REPORTS.labels(sale.id).inc()
        warn(Action.LOST_REPORTED, sale_id=sale.id, epoch=sale.epoch, run_id=found.run_id, replid=found.replid)
        try:
            await self._store.report_lost(sale.id, sale.epoch, found, self._clock.now_ms())
            self._shut[key] = self._clock.monotonic_s()
        except StoreUnavailable as away:
            warn(Action.LOOP_FAILED, loop="report_lost", sale_id=sale.id, error=str(away))
        finally:
            if self._shut.get(key) == math.inf:
                # Also where the caller's time was over: the gate must not stay shut unreported. The next call reports.
                del self._shut[key]


def _is_heard(look: asyncio.Task[None]) -> None:
    """Whoever waited may have gone: an error that nobody takes is no news, the next read has it too."""
    if not look.cancelled():
        look.exception()
