"""How reservations stand now, asked of all stores and of nobody's memory. Read only: it fences nothing, and reports no
loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.core.one_look import SlotReads
from service.domain.errors import StockUnavailable
from service.domain.ids import BatchId, ReservationId, home_segment
from service.domain.order import Order
from service.domain.replay import Found, Now, batch_may_yet_win, standing_now
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Record, Slot
from service.ports.clock import Clock
from service.ports.orders import OrderStore

FIND_MAX = 500
"""Ids of one look into a slot: the bound of peek.lua without a limit."""


@dataclass(frozen=True, kw_only=True)
class Stand:
    """`readable`: every slot that was asked could be looked at."""

    reservations: tuple[Now, ...]
    records: Mapping[ReservationId, Record]
    readable: bool


@dataclass(frozen=True, kw_only=True)
class _Records:
    found: dict[ReservationId, Record]
    readable: bool


class Standings:
    """`margin_ms`: as of a 404 (core/reservations.py)."""

    def __init__(self, orders: OrderStore, stock: SlotReads, clock: Clock, *, margin_ms: int) -> None:
        self._orders = orders
        self._stock = stock
        self._clock = clock
        self._margin_ms = margin_ms

    async def of(self, sale: Sale, ids: Sequence[ReservationId], *, epoch: int | None = None) -> Stand:
        """In the order of the ids, which are this sale's. `epoch` is that of the batch that carries them; None: they
        were named alone."""
        now_ms = self._clock.now_ms()
        rows = await self._orders.orders(ids)
        without = [id_ for id_ in ids if id_ not in rows]
        records = await self._records(sale, without)
        # SQL again: a row may have come, and its record gone, since the first look.
        rows |= await self._rows_again(without)
        may = self._older_may(sale, now_ms) if epoch is None else await self._batch_may(sale, epoch, now_ms)
        return Stand(
            reservations=tuple(
                standing_now(
                    id_,
                    Found(row=rows.get(id_), record=records.found.get(id_), readable=records.readable),
                    may_yet_appear=may,
                )
                for id_ in ids
            ),
            records=records.found,
            readable=records.readable,
        )

    def older_may_yet_appear(self, sale: Sale) -> bool:
        """Whether a candidate of any older epoch may still become an order."""
        return self._older_may(sale, self._clock.now_ms())

    async def losers(self, batch_id: BatchId) -> frozenset[ReservationId]:
        """Whom the decision row of this batch names."""
        _, losers = await self._orders.batch_rows(batch_id)
        return losers or frozenset()

    async def _rows_again(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]:
        return await self._orders.orders(ids) if ids else {}

    async def _records(self, sale: Sale, ids: Sequence[ReservationId]) -> _Records:
        if sale.authority is not Authority.REDIS:
            return _Records(found={}, readable=True)
        by_segment: dict[int, list[ReservationId]] = {}
        for id_ in ids:
            by_segment.setdefault(home_segment(id_, sale.segments), []).append(id_)
        found: dict[ReservationId, Record] = {}
        readable = True
        for segment, of_segment in by_segment.items():
            slot = Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch)
            for start in range(0, len(of_segment), FIND_MAX):
                part = await self._find(slot, of_segment[start : start + FIND_MAX])
                found |= part.found
                readable = readable and part.readable
        return _Records(found=found, readable=readable)

    async def _find(self, slot: Slot, ids: Sequence[ReservationId]) -> _Records:
        try:
            reply = await self._stock.find(slot, ids)
        except StockUnavailable:
            return _Records(found={}, readable=False)
        if isinstance(reply, Lost):
            return _Records(found={}, readable=False)
        return _Records(found=reply, readable=True)

    async def _batch_may(self, sale: Sale, epoch: int, now_ms: int) -> bool:
        older = sale.authority is Authority.REDIS and epoch < sale.epoch
        deadline_ms = await self._orders.epoch_deadline_ms(sale.id, epoch) if older else None
        closed_at_ms = None if deadline_ms is None else deadline_ms + self._margin_ms
        return batch_may_yet_win(sale, epoch, closed_at_ms=closed_at_ms, now_ms=now_ms)

    def _older_may(self, sale: Sale, now_ms: int) -> bool:
        deadline_ms = sale.older_deadline_ms
        return deadline_ms is not None and now_ms < deadline_ms + self._margin_ms
