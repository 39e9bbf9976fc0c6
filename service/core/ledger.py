"""The ledger of a sale: every term of I1, from SQL and from each slot (design §2)."""

from __future__ import annotations

from collections.abc import Sequence

from service.core.directory import SaleDirectory
from service.domain.errors import StockUnavailable
from service.domain.ids import SaleId
from service.domain.ledger import Ledger
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Slot, SlotCount
from service.ports.orders import OrderStore, SaleStore
from service.ports.stock import Stock


class LedgerService:
    def __init__(self, directory: SaleDirectory, sales: SaleStore, orders: OrderStore, stock: Stock) -> None:
        self._directory = directory
        self._sales = sales
        self._orders = orders
        self._stock = stock

    async def ledger(self, sale_id: SaleId) -> Ledger:
        sale = await self._directory.current(sale_id)
        terms = await self._orders.terms(sale_id)
        slots = await self._slots(sale) if sale.authority is Authority.REDIS else {}
        return Ledger(sale_id=sale.id, authority=sale.authority.value, epoch=sale.epoch, sql=terms, slots=slots)

    async def all(self) -> Sequence[Ledger]:
        return [await self.ledger(sale.id) for sale in await self._sales.sales()]

    async def _slots(self, sale: Sale) -> dict[int, SlotCount | None]:
        return {
            segment: await self._count(Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch))
            for segment in range(sale.segments)
        }

    async def _count(self, slot: Slot) -> SlotCount | None:
        try:
            count = await self._stock.count(slot)
        except StockUnavailable:
            return None
        return None if isinstance(count, Lost) else count
