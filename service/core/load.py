"""The load: one snapshot of SQL into a new epoch's slots, stamped last (design §3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.domain.ids import BuyerId, home_segment
from service.domain.sale import Sale, ServerIds
from service.domain.stock import LoadRefused, Record, RecordState, Slot, slots_of
from service.ports.clock import Clock
from service.ports.orders import SaleStore
from service.ports.stock import Stock

RECORDS_A_CHUNK = 500
"""One load call holds the server for about a millisecond."""


class Loader:
    def __init__(self, sales: SaleStore, stock: Stock, clock: Clock) -> None:
        self._sales = sales
        self._stock = stock
        self._clock = clock

    async def load(self, sale: Sale) -> LoadRefused | None:
        """Load the epoch that `sale` is in. None: loaded and stamped; else nothing of this attempt may be used."""
        slots = slots_of(sale.id, sale.epoch, sale.segments)
        servers = [await self._stock.server_ids(slot) for slot in slots]
        snapshot = await self._sales.snapshot(sale.id, sale.epoch)
        if snapshot is None:
            return LoadRefused(found=servers[0], stamped=False)
        homes = _by_home(snapshot.records, sale.segments)
        for slot, server, records in zip(slots, servers, homes, strict=True):
            available = _share(snapshot.available, slot.segment, sale.segments)
            refused = await self._load_slot(slot, server, records, available)
            if refused is not None:
                return refused
        return await self._stamp(slots, servers)

    async def _load_slot(
        self, slot: Slot, server: ServerIds, records: Sequence[Record], available: int
    ) -> LoadRefused | None:
        for start in range(0, len(records), RECORDS_A_CHUNK):
            reply = await self._stock.load_records(slot, server, records[start : start + RECORDS_A_CHUNK])
            if isinstance(reply, LoadRefused):
                return reply
        held = sum(record.quantity for record in records if record.state is RecordState.ORDERED)
        reply = await self._stock.load_stock(slot, server, available=available, buyer_units=_units(records), held=held)
        return reply if isinstance(reply, LoadRefused) else None

    async def _stamp(self, slots: Sequence[Slot], servers: Sequence[ServerIds]) -> LoadRefused | None:
        for slot, server in zip(slots, servers, strict=True):
            reply = await self._stock.stamp(slot, server, now_ms=self._clock.now_ms())
            if isinstance(reply, LoadRefused):
                return reply
        return None


def _by_home(records: Sequence[Record], segments: int) -> Sequence[Sequence[Record]]:
    homes: list[list[Record]] = [[] for _ in range(segments)]
    for record in records:
        homes[home_segment(record.reservation_id, segments)].append(record)
    return homes


def _share(available: int, segment: int, segments: int) -> int:
    """Equal shares; the first segments get what is over."""
    return available // segments + (1 if segment < available % segments else 0)


def _units(records: Sequence[Record]) -> Mapping[BuyerId, int]:
    units: dict[BuyerId, int] = {}
    for record in records:
        if record.state is RecordState.ORDERED:
            units[record.buyer_id] = units.get(record.buyer_id, 0) + record.quantity
    return units
