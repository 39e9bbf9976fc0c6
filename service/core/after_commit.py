"""After the order transaction's COMMIT and before the ack: Redis hears of it, and the delay messages are armed. Best
effort, and bounded: what is left undone is repaired by the keeper's sweeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from service.core.claims import BatchClaims
from service.core.directory import SaleDirectory
from service.core.release import note_write_offs
from service.core.timeouts import PaymentTimeouts
from service.domain.errors import DropgateError
from service.domain.ids import ReservationId
from service.domain.order import Decision, Owed
from service.domain.sale import Sale
from service.domain.stock import Effect, Lost, Slot
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.orders import OrderStore
from service.ports.stock import Stock

AFTER_COMMIT_S = 3.0
"""For everything here together. The messages are held for 30 s (INVISIBLE_S), and the transactions before may have
taken half of that (COMMIT_S)."""

Made = tuple[BatchClaims, Decision]
"""A batch, or a part of one, and the decision on its sale that it was in."""


class AfterCommit:
    def __init__(
        self, *, directory: SaleDirectory, stock: Stock, orders: OrderStore, timeouts: PaymentTimeouts
    ) -> None:
        self._directory = directory
        self._stock = stock
        self._orders = orders
        self._timeouts = timeouts

    async def tell(self, made: Sequence[Made]) -> None:
        """Both at once, since one of the two may be away; each stops at its first trouble, and raises nothing of ours:
        the orders are there, and the ack depends on nothing else."""
        if not made:
            return
        try:
            async with asyncio.timeout(AFTER_COMMIT_S), asyncio.TaskGroup() as group:
                group.create_task(self._told(made, self._confirm))
                group.create_task(self._told(made, self._arm))
        except TimeoutError:
            warn(Action.LOOP_FAILED, loop="after_commit", error=f"not done within {AFTER_COMMIT_S:g} s")

    async def _told(self, made: Sequence[Made], work: Callable[[Sequence[Made]], Awaitable[None]]) -> None:
        try:
            await work(made)
        except DropgateError as error:
            warn(Action.LOOP_FAILED, loop="after_commit", batch_id=made[0][0].batch_id, error=str(error))

    async def _arm(self, made: Sequence[Made]) -> None:
        decisions = {id(decision): decision for _, decision in made}
        await self._timeouts.try_schedule([order for it in decisions.values() for order in it.accepted])

    async def _confirm(self, made: Sequence[Made]) -> None:
        applied: list[Owed] = []
        for slot, of_slot in _by_slot(made).items():
            reply = await self._stock.confirm(slot, of_slot.effects)
            if isinstance(reply, Lost):
                await self._directory.report_lost(of_slot.sale, reply.found)
                continue
            note_write_offs(slot, of_slot.owed, reply.changed)
            applied += of_slot.owed
        await self._orders.clear_owed(applied)


@dataclass(frozen=True, kw_only=True)
class _OfSlot:
    """What confirm.lua shall do with the units that a slot holds, and what of it is owed."""

    sale: Sale
    effects: dict[ReservationId, Effect] = field(default_factory=dict)
    owed: list[Owed] = field(default_factory=list)


def _by_slot(made: Sequence[Made]) -> dict[Slot, _OfSlot]:
    """One call a slot. Batches of one transaction share a decision, which is as large as all of them."""
    decisions = {id(decision): decision for _, decision in made}
    owed = {it.reservation_id: it for one in decisions.values() for it in (*one.owed, *one.owed_before)}
    kept = {it.id for one in decisions.values() for it in (*one.accepted, *one.existing) if it.holds_stock}
    slots: dict[Slot, _OfSlot] = {}
    for batch, _ in made:
        for segment, ids in _held(batch).items():
            slot = Slot(sale_id=batch.sale.id, segment=segment, epoch=batch.sale.epoch)
            of_slot = slots.setdefault(slot, _OfSlot(sale=batch.sale))
            for id_ in ids:
                if id_ in owed:
                    of_slot.effects[id_] = owed[id_].effect
                    of_slot.owed.append(owed[id_])
                elif id_ in kept:
                    of_slot.effects[id_] = Effect.KEEP
    return slots


def _held(batch: BatchClaims) -> dict[int, list[ReservationId]]:
    """Ids whose units Redis holds, by segment."""
    held: dict[int, list[ReservationId]] = {}
    for claim in batch.claims:
        if claim.holds_redis:
            held.setdefault(claim.segment, []).append(claim.candidate.reservation_id)
    return held
