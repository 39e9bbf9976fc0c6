"""GET: what every store together says of a reservation id. SQL first, then Redis, and SQL again before a 404 (design
§3.3)."""

from __future__ import annotations

from service.core.directory import SaleDirectory
from service.core.views import queued_from_record
from service.domain.errors import NotFound, OutcomeUnknown
from service.domain.ids import ReservationId, home_segment, parse_reservation_id
from service.domain.reservation import Reservation
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Record, RecordState, Slot
from service.ports.clock import Clock
from service.ports.orders import OrderStore
from service.ports.stock import Stock


class ReservationReader:
    """`margin_ms`: a 404 waits this much longer than the deadline. It is longer than any transaction that read its
    clock before the deadline may live, and than the clocks of a fleet differ."""

    def __init__(
        self, directory: SaleDirectory, stock: Stock, orders: OrderStore, clock: Clock, *, margin_ms: int
    ) -> None:
        self.margin_ms = margin_ms
        self._directory = directory
        self._stock = stock
        self._orders = orders
        self._clock = clock

    async def get(self, id_: ReservationId) -> Reservation:
        """NotFound: of what was answered so far this id holds nothing and never will. OutcomeUnknown: it may yet
        appear."""
        now_ms = self._clock.now_ms()
        order = await self._orders.order(id_)
        if order is not None:
            return order.as_reservation()
        sale = await self._sale_of(id_)
        record = await self.record(sale, id_)
        if record is not None and record.state is RecordState.QUEUED:
            return queued_from_record(sale, record)
        return await self._from_sql_again(sale, id_, known=record is not None, now_ms=now_ms)

    async def record(self, sale: Sale, id_: ReservationId) -> Record | None:
        """What the home slot knows of the id; None where another authority than Redis decides."""
        if sale.authority is not Authority.REDIS:
            return None
        slot = Slot(sale_id=sale.id, segment=home_segment(id_, sale.segments), epoch=sale.epoch)
        found = await self._stock.find(slot, [id_])
        if isinstance(found, Lost):
            await self._directory.report_lost(sale, found.found)
            raise OutcomeUnknown(id_)
        return found.get(id_)

    async def _sale_of(self, id_: ReservationId) -> Sale:
        parsed = parse_reservation_id(id_)
        if parsed is None:
            raise NotFound("reservation", id_)
        try:
            return await self._directory.current(parsed[0])
        except NotFound:
            raise NotFound("reservation", id_) from None

    async def _from_sql_again(self, sale: Sale, id_: ReservationId, *, known: bool, now_ms: int) -> Reservation:
        order = await self._orders.order(id_)
        if order is not None:
            return order.as_reservation()
        deadline_ms = sale.older_deadline_ms
        if known or (deadline_ms is not None and now_ms < deadline_ms + self.margin_ms):
            raise OutcomeUnknown(id_)
        raise NotFound("reservation", id_)
