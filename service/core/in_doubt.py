"""Batches that Redis has decided and that have no orders: found by sale, by reservation, by batch. Read only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from service.core.claims import claims_of_stored, lacks_body
from service.core.directory import SaleDirectory
from service.core.named import NamedIds, Queued
from service.core.one_look import OneLook
from service.core.replay_cases import Case, Listed, Looked, MakeOrders, bounded, if_old_enough, left_alone
from service.core.standings import Standings
from service.domain.batch import TIME_MAX_MS
from service.domain.errors import StockUnavailable
from service.domain.ids import BatchId, home_segment
from service.domain.replay import BATCHES_MAX, LOOK_MAX, Item, Outcome, Scope
from service.domain.replay_plan import StoredFacts, plan_stored
from service.domain.sale import Authority, Sale
from service.domain.stock import Batches, Lost, RecordState, Slot, StoredBatch, slots_of
from service.ports.clock import Clock

BATCHES_A_CALL = 32
"""The bound of batches.lua for ids."""


class InDoubtFinder:
    """For one look."""

    def __init__(
        self, directory: SaleDirectory, look: OneLook, standings: Standings, named: NamedIds, clock: Clock
    ) -> None:
        self._directory = directory
        self._stock = look
        self._standings = standings
        self._named = named
        self._clock = clock

    async def find(self, scope: Scope) -> Looked:
        sale = None if scope.sale_id is None else await self._directory.current(scope.sale_id)
        if not scope.names_ids:
            return await self._listed(scope, self._directory.all() if sale is None else [sale])
        cases = await self._of_reservations(scope)
        known = {case.item.batch_id for case in cases} - {None}
        if sale is not None:
            cases += [case for case in await self._of_batches(sale, scope.batch_ids) if case.item.batch_id not in known]
        now_ms = self._clock.now_ms()
        old_enough = (if_old_enough(case, scope, now_ms) for case in cases)
        return bounded(old_enough, BATCHES_MAX, more=self._stock.is_over())

    # --- nothing named: what the slots list ---------------------------------------------------------------------------

    async def _listed(self, scope: Scope, sales: Sequence[Sale]) -> Looked:
        before_ms = self._clock.now_ms() - scope.older_than_s * 1000 if scope.older_than_s else TIME_MAX_MS
        listed = Listed(BATCHES_MAX)
        for sale in sales:
            if sale.authority is not Authority.REDIS:
                listed.add(self._elsewhere(sale))
                continue
            for slot in slots_of(sale.id, sale.epoch, sale.segments):
                if listed.is_full or self._stock.is_over():
                    return listed.looked(more=True)
                await self._of_slot(listed, sale, slot, before_ms)
        return listed.looked(more=self._stock.is_over())

    def _elsewhere(self, sale: Sale) -> list[Case]:
        """Its slots are gone or not stamped yet: what its older epochs told buyers is in messages only."""
        if sale.authority is not Authority.LOADING and not self._standings.older_may_yet_appear(sale):
            return []
        why = f"{sale.id} is under {sale.authority}: its messages may be on their way."
        return [left_alone(Outcome.WAITING, why, sale_id=sale.id)]

    async def _of_slot(self, listed: Listed, sale: Sale, slot: Slot, before_ms: int) -> None:
        """Its oldest batches. Where nothing can be done for some of these, those behind them are asked for too."""
        seen: set[BatchId] = set()
        limit = BATCHES_MAX + 1
        while True:
            reply = await self._undelivered(slot, before_ms, limit)
            if isinstance(reply, Case):
                listed.add([reply])
                return
            ids = {*reply.found, *reply.unreadable}
            listed.add(await self._of_reply(sale, _besides(reply, seen)))
            if len(ids) < limit or ids <= seen or listed.is_full:
                return
            if limit >= LOOK_MAX:
                listed.more = True
                return
            seen |= ids
            limit = min(2 * limit, LOOK_MAX)

    async def _undelivered(self, slot: Slot, before_ms: int, limit: int) -> Batches | Case:
        try:
            reply = await self._stock.undelivered(slot, before_ms, limit)
        except StockUnavailable as error:
            return _unread(slot, str(error))
        return _unread(slot, "it is lost") if isinstance(reply, Lost) else reply

    # --- named --------------------------------------------------------------------------------------------------------

    async def _of_reservations(self, scope: Scope) -> list[Case]:
        """Several ids may be of one batch: it is one item."""
        cases: list[Case] = []
        batches: dict[BatchId, Queued] = {}
        for id_ in scope.reservation_ids:
            known = await self._named.reservation(scope, id_)
            if isinstance(known, Queued):
                batches[known.record.batch_id] = known
            else:
                cases.append(known)
        for batch_id, queued in batches.items():
            segment = home_segment(queued.record.reservation_id, queued.sale.segments)
            cases += await self._of_ids(queued.sale, segment, [batch_id]) or [_without_batch(queued)]
        return cases

    async def _of_batches(self, sale: Sale, batch_ids: Sequence[BatchId]) -> list[Case]:
        segments = sale.segments if sale.authority is Authority.REDIS else 0
        cases: list[Case] = []
        for segment in range(segments):
            cases += await self._of_ids(sale, segment, batch_ids)
        found = {case.item.batch_id for case in cases}
        unread = next((case.item.why for case in cases if case.item.batch_id is None), None)
        missing = [batch_id for batch_id in batch_ids if batch_id not in found]
        return cases + [await self._named.batch(sale, batch_id, unread) for batch_id in missing]

    async def _of_ids(self, sale: Sale, segment: int, batch_ids: Sequence[BatchId]) -> list[Case]:
        slot = Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch)
        cases: list[Case] = []
        for start in range(0, len(batch_ids), BATCHES_A_CALL):
            try:
                reply = await self._stock.batches(slot, batch_ids[start : start + BATCHES_A_CALL])
            except StockUnavailable as error:
                return [_unread(slot, str(error))]
            if isinstance(reply, Lost):
                return [_unread(slot, "it is lost")]
            cases += await self._of_reply(sale, reply)
        return cases

    # --- a batch ------------------------------------------------------------------------------------------------------

    async def _of_reply(self, sale: Sale, reply: Batches) -> list[Case]:
        unreadable = [_unreadable(sale, batch_id) for batch_id in sorted(reply.unreadable)]
        return unreadable + [await self._case(sale, batch_id, stored) for batch_id, stored in reply.found.items()]

    async def _case(self, sale: Sale, batch_id: BatchId, stored: StoredBatch) -> Case:
        stand = await self._standings.of(sale, list(stored.winners), epoch=sale.epoch)
        queued = sum(record.state is RecordState.QUEUED for record in stored.winners.values())
        facts = StoredFacts(winners=stand.reservations, queued=queued, lacks_body=lacks_body(stored))
        plan = plan_stored(facts)
        item = Item(
            outcome=plan.outcome,
            why=plan.why,
            batch_id=batch_id,
            sale_id=sale.id,
            epoch=sale.epoch,
            born_at_ms=stored.message.created_at_ms,
            reservations=stand.reservations,
        )
        acts = plan.outcome is Outcome.PLANNED
        return Case(item=item, act=MakeOrders(claims=claims_of_stored(sale, batch_id, stored)) if acts else None)


def _besides(reply: Batches, seen: Collection[BatchId]) -> Batches:
    found = {id_: stored for id_, stored in reply.found.items() if id_ not in seen}
    return Batches(found=found, unreadable=reply.unreadable.difference(seen))


def _unread(slot: Slot, why: str) -> Case:
    sentence = f"Segment {slot.segment} of {slot.sale_id} cannot be read: {why}"
    return left_alone(Outcome.WAITING, sentence, sale_id=slot.sale_id)


def _unreadable(sale: Sale, batch_id: BatchId) -> Case:
    plan = plan_stored(StoredFacts(unreadable=True))
    item = Item(outcome=plan.outcome, why=plan.why, batch_id=batch_id, sale_id=sale.id, epoch=sale.epoch)
    return Case(item=item)


def _without_batch(queued: Queued) -> Case:
    """It ended a moment ago with its epoch, or the slot was damaged."""
    id_ = queued.record.reservation_id
    return left_alone(Outcome.WAITING, "Its batch is not in its slot now.", id_, sale_id=queued.sale.id)
