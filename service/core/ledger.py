"""The ledger of a sale: every term of I1, from SQL and from each slot (design §2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from service.core.directory import SaleDirectory
from service.domain.errors import StockUnavailable
from service.domain.ids import SaleId
from service.domain.ledger import Ledger
from service.domain.road import wanted_authority
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Slot, SlotCount
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleStore
from service.ports.stock import Stock


class LedgerService:
    """`in_doubt_max_s`: how long a batch may have no orders (I5)."""

    def __init__(
        self,
        directory: SaleDirectory,
        sales: SaleStore,
        orders: OrderStore,
        stock: Stock,
        clock: Clock,
        *,
        in_doubt_max_s: float,
    ) -> None:
        self._directory = directory
        self._sales = sales
        self._orders = orders
        self._stock = stock
        self._clock = clock
        self._in_doubt_max_ms = int(in_doubt_max_s * 1000)

    async def ledger(self, sale_id: SaleId) -> Ledger:
        sale = await self._directory.current(sale_id)
        terms = await self._orders.terms(sale_id)
        slots = await self._slots(sale) if sale.authority is Authority.REDIS else {}
        return Ledger(
            sale_id=sale.id,
            authority=sale.authority.value,
            epoch=sale.epoch,
            sql=terms,
            slots=slots,
            wanted=wanted_authority(sale).value,
            overdue_s=await self._overdue(sale, slots),
        )

    async def all(self) -> Sequence[Ledger]:
        return [await self.ledger(sale.id) for sale in await self._sales.sales()]

    async def _slots(self, sale: Sale) -> dict[int, SlotCount | None]:
        return {
            segment: await self._count(Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch))
            for segment in range(sale.segments)
        }

    async def _overdue(self, sale: Sale, slots: Mapping[int, SlotCount | None]) -> dict[int, int]:
        """By segment, the age of the oldest batch that has been without orders for longer than I5 allows."""
        now_ms = self._clock.now_ms()
        overdue: dict[int, int] = {}
        for segment, count in slots.items():
            if count is None or count.undelivered_batches == 0:
                continue
            slot = Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch)
            with suppress(StockUnavailable):
                reply = await self._stock.undelivered(slot, now_ms - self._in_doubt_max_ms, 1)
                for stored in () if isinstance(reply, Lost) else reply.found.values():
                    overdue[segment] = (now_ms - stored.message.created_at_ms) // 1000
        return overdue

    async def _count(self, slot: Slot) -> SlotCount | None:
        try:
            count = await self._stock.count(slot)
        except StockUnavailable:
            return None
        return None if isinstance(count, Lost) else count
