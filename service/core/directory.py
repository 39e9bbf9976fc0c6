"""This process's view of the sale rows (design §3.3): read every 0.5 s, and not trusted when older than 2 s."""

from __future__ import annotations

from service.domain.errors import NotFound, StoreUnavailable, Unavailable
from service.domain.ids import SaleId
from service.domain.sale import Sale, ServerIds
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.orders import SaleStore

REFRESH_S = 0.5
STALE_S = 2.0


class SaleDirectory:
    def __init__(self, store: SaleStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._sales: dict[SaleId, Sale] = {}
        self._read_at_s: float | None = None
        self._shut: set[tuple[SaleId, int]] = set()

    async def refresh(self) -> None:
        """One good read. Its age counts from its beginning: what it saw may be as old as that."""
        began_s = self._clock.monotonic_s()
        sales = await self._store.sales()
        self._sales = {sale.id: sale for sale in sales}
        self._read_at_s = began_s
        self._shut &= {(sale.id, sale.epoch) for sale in sales}
        for sale in sales:
            metrics.EPOCH.labels(sale.id).set(sale.epoch)

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

    async def current(self, sale_id: SaleId) -> Sale:
        """The sale as its row is now: for whoever decides by authority and epoch rather than sells."""
        sale = await self._store.sale(sale_id)
        if sale is None:
            raise NotFound("sale", sale_id)
        return sale

    async def report_lost(self, sale: Sale, found: ServerIds) -> None:
        """Shut this process's gate at once, and tell the leader through the row, where it is sticky."""
        if (sale.id, sale.epoch) in self._shut:
            return
        self._shut.add((sale.id, sale.epoch))
        metrics.LOSSES.labels(sale.id).inc()
        warn(Action.LOST_REPORTED, sale_id=sale.id, epoch=sale.epoch, run_id=found.run_id, replid=found.replid)
        try:
            await self._store.report_lost(sale.id, sale.epoch, found, self._clock.now_ms())
        except StoreUnavailable as error:
            # The next call that meets the loss reports again: the gate of this process must not stay shut unreported.
            self._shut.discard((sale.id, sale.epoch))
            warn(Action.LOOP_FAILED, loop="report_lost", sale_id=sale.id, error=str(error))
