"""The slots as one look of a replay reads them: none that did not answer is asked twice, and no look lasts for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from service.domain.errors import StockUnavailable
from service.domain.ids import BatchId, ReservationId
from service.domain.stock import Batches, Lost, Record, Slot
from service.ports.clock import Clock

LOOK_S = 10.0
"""How long a look goes on. A caller of HTTP waits for it, and one in which everything answers takes a second or two."""

T = TypeVar("T")


class SlotReads(Protocol):
    """The part of the port's Stock that a look needs."""

    async def find(
        self, slot: Slot, reservation_ids: Sequence[ReservationId]
    ) -> dict[ReservationId, Record] | Lost: ...

    async def batches(self, slot: Slot, batch_ids: Sequence[BatchId]) -> Batches | Lost: ...

    async def undelivered(self, slot: Slot, decided_before_ms: int, limit: int) -> Batches | Lost: ...


class OneLook:
    """Made for one look and dropped with it. A slot that did not answer, or any after the time, is StockUnavailable at
    once. It remembers no more slots than the look meets."""

    def __init__(self, stock: SlotReads, clock: Clock) -> None:
        self._stock = stock
        self._clock = clock
        self._ends_s = clock.monotonic_s() + LOOK_S
        self._silent: dict[Slot, StockUnavailable] = {}

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def is_over(self) -> bool:
        return self._clock.monotonic_s() >= self._ends_s

    async def find(self, slot: Slot, reservation_ids: Sequence[ReservationId]) -> dict[ReservationId, Record] | Lost:
        return await self._read(slot, lambda: self._stock.find(slot, reservation_ids))

    async def batches(self, slot: Slot, batch_ids: Sequence[BatchId]) -> Batches | Lost:
        return await self._read(slot, lambda: self._stock.batches(slot, batch_ids))

    async def undelivered(self, slot: Slot, decided_before_ms: int, limit: int) -> Batches | Lost:
        return await self._read(slot, lambda: self._stock.undelivered(slot, decided_before_ms, limit))

    async def _read(self, slot: Slot, read: Callable[[], Awaitable[T]]) -> T:
        if slot in self._silent:
            raise self._silent[slot]
        if self.is_over():
            raise StockUnavailable("redis", f"the look is over after {LOOK_S:g} s: look again, or name a sale")
        try:
            return await read()
        except StockUnavailable as error:
            self._silent[slot] = error
            raise
