"""What SQL decided, applied to Redis: owed effects, once each, and only in the epoch they name (design §3.3, §3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.core.directory import SaleDirectory
from service.domain.errors import DropgateError
from service.domain.ids import ReservationId
from service.domain.order import Owed
from service.domain.stock import Effect, Lost, Slot
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.orders import OrderStore
from service.ports.stock import Stock


class Releases:
    def __init__(self, directory: SaleDirectory, stock: Stock, orders: OrderStore) -> None:
        self._directory = directory
        self._stock = stock
        self._orders = orders

    async def try_apply(self, owed: Sequence[Owed]) -> None:
        """Right after the COMMIT that owes them: best effort, the keeper repeats what fails, for whatever reason."""
        try:
            await self.apply(owed)
        except DropgateError as error:
            warn(Action.LOOP_FAILED, loop="release", error=str(error), first=owed[0].reservation_id if owed else None)

    async def apply(self, owed: Sequence[Owed]) -> int:
        """end.lua for each slot, then clear what was owed; the number applied."""
        applied = 0
        for slot, items in by_slot(owed).items():
            effects = {item.reservation_id: item.effect for item in items}
            reply = await self._stock.end(slot, effects)
            if isinstance(reply, Lost):
                await self._report(slot, reply)
                continue
            await self._orders.clear_owed(items)
            note_write_offs(slot, items, reply.changed)
            applied += len(items)
            log(Action.RELEASED, sale_id=slot.sale_id, epoch=slot.epoch, items=len(items), changed=len(reply.changed))
        return applied

    async def _report(self, slot: Slot, lost: Lost) -> None:
        sale = await self._directory.current(slot.sale_id)
        if sale.epoch == slot.epoch:
            await self._directory.report_lost(sale, lost.found)


def note_write_offs(slot: Slot, items: Iterable[Owed], changed: frozenset[ReservationId]) -> None:
    written_off = [item for item in items if item.effect is Effect.WRITE_OFF and item.reservation_id in changed]
    if written_off:
        metrics.WRITE_OFFS.labels(slot.sale_id).inc(len(written_off))
        warn(Action.WRITE_OFF, sale_id=slot.sale_id, epoch=slot.epoch, reservations=len(written_off))


def slot_of(owed: Owed) -> Slot:
    return Slot(sale_id=owed.sale_id, segment=owed.segment, epoch=owed.epoch)


def by_slot(owed: Sequence[Owed]) -> dict[Slot, list[Owed]]:
    slots: dict[Slot, list[Owed]] = {}
    for item in owed:
        slots.setdefault(slot_of(item), []).append(item)
    return slots
