"""Stock in memory: the same replies as scripts/lua, from a second, plain reading of the rules. For tests and examples.

One difference: of a buyer with more than eight live reservations Redis may have forgotten the older ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from service.adapters.memory.slot import (
    BatchState,
    SlotState,
    decide,
    ended_unknown,
    is_decided,
    peek,
    reserve_answer,
    stored,
)
from service.domain.batch import BatchMessage, Candidate
from service.domain.ids import BatchId, BuyerId, ReservationId
from service.domain.sale import ServerIds
from service.domain.stock import (
    Adjusted,
    Applied,
    Batches,
    BatchRecord,
    Effect,
    Fenced,
    FenceWritten,
    LateRules,
    Loaded,
    LoadRefused,
    Lost,
    No,
    PeekAnswer,
    Peeked,
    Record,
    RecordState,
    Reserved,
    Slot,
    SlotCount,
    TooFewLeft,
)
from service.ports.clock import Clock


class MemoryStock:
    """Fulfils ports.stock.Stock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[Slot, SlotState] = {}
        self.server = _new_server()

    def lose(self, *, keep_data: bool = False) -> None:
        """The server is another one now: empty, or with the data that a copy of it had."""
        self.server = _new_server()
        if not keep_data:
            self._slots.clear()

    async def server_ids(self, slot: Slot) -> ServerIds:  # noqa: ARG002 - one server for all slots
        return self.server

    async def peek(self, slot: Slot, candidates: Sequence[Candidate], limit_per_buyer: int) -> Peeked | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        answers: dict[ReservationId, PeekAnswer] = {}
        for candidate in candidates:
            answers[candidate.reservation_id] = peek(state, candidate, limit_per_buyer)
        return Peeked(answers=answers)

    async def find(self, slot: Slot, reservation_ids: Sequence[ReservationId]) -> dict[ReservationId, Record] | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        return {id_: state.records[id_] for id_ in reservation_ids if id_ in state.records}

    async def reserve(
        self, slot: Slot, batch: BatchMessage, limit_per_buyer: int, late: LateRules | None = None
    ) -> Reserved | Fenced | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        ids = [candidate.reservation_id for candidate in batch.candidates]
        decided = state.batches.get(batch.batch_id)
        if decided is None and batch.batch_id in state.fences:
            return Fenced(known={id_: state.records[id_] for id_ in ids if id_ in state.records})
        record = state.batches.setdefault(batch.batch_id, BatchState(decided_at_ms=self._clock.now_ms()))
        past = late is not None and self._clock.now_ms() >= late.deadline_ms
        known = {id_ for id_ in ids if id_ in state.records and id_ not in record.winners}
        for candidate in batch.candidates:
            if candidate.reservation_id not in known and not is_decided(record, candidate.reservation_id):
                no = No.PAST_DEADLINE if past else state.refuse(candidate, limit_per_buyer)
                decide(state, record, batch, candidate, no=no, write_ended=late is not None)
        answers = {it.reservation_id: reserve_answer(state, record, it) for it in batch.candidates}
        return Reserved(answers=answers, replayed=decided is not None)

    async def resolve(self, slot: Slot, batch_id: BatchId) -> BatchRecord | FenceWritten | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        if batch_id in state.batches:
            return BatchRecord(winners=frozenset(state.batches[batch_id].winners))
        state.fences.add(batch_id)
        return FenceWritten()

    async def batches(self, slot: Slot, batch_ids: Sequence[BatchId]) -> Batches | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        return Batches(found={id_: stored(slot, state, id_) for id_ in batch_ids if id_ in state.batches})

    async def undelivered(self, slot: Slot, decided_before_ms: int, limit: int) -> Batches | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        waiting = [
            (batch.decided_at_ms, id_)
            for id_, batch in state.batches.items()
            if batch.decided_at_ms < decided_before_ms and state.is_undelivered(batch)
        ]
        return Batches(found={id_: stored(slot, state, id_) for _, id_ in sorted(waiting)[:limit]})

    async def confirm(self, slot: Slot, effects: Mapping[ReservationId, Effect]) -> Applied | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        known = {id_: effect for id_, effect in effects.items() if id_ in state.records}
        return Applied(changed=frozenset(id_ for id_, effect in known.items() if state.apply(id_, effect)))

    async def end(self, slot: Slot, effects: Mapping[ReservationId, Effect]) -> Applied | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        changed = set()
        for id_, effect in effects.items():
            if id_ in state.records:
                if state.apply(id_, effect):
                    changed.add(id_)
            elif effect is not Effect.KEEP:
                state.records[id_] = ended_unknown(id_, self._clock.now_ms())
                changed.add(id_)
        return Applied(changed=frozenset(changed))

    async def adjust(self, slot: Slot, adjustment_id: str, delta: int) -> Adjusted | TooFewLeft | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        if adjustment_id in state.adjustments:
            return Adjusted()
        if adjustment_id in state.refused_adjustments:
            return TooFewLeft(available=state.available)
        if state.available + delta < 0:
            state.refused_adjustments.add(adjustment_id)
            return TooFewLeft(available=state.available)
        state.adjustments.add(adjustment_id)
        state.available += delta
        state.granted += delta
        return Adjusted()

    async def count(self, slot: Slot) -> SlotCount | Lost:
        state = self._valid(slot)
        if isinstance(state, Lost):
            return state
        return SlotCount(
            granted=state.granted,
            available=state.available,
            held=state.held,
            queued=state.units(RecordState.QUEUED),
            ordered=state.units(RecordState.ORDERED),
            buyers_units=sum(state.buyers.values()),
            undelivered_batches=sum(state.is_undelivered(batch) for batch in state.batches.values()),
        )

    async def load_records(self, slot: Slot, server: ServerIds, records: Sequence[Record]) -> Loaded | LoadRefused:
        state = self._loadable(slot, server)
        if isinstance(state, LoadRefused):
            return state
        for record in records:
            state.records.setdefault(record.reservation_id, record)
        return Loaded()

    async def load_stock(
        self, slot: Slot, server: ServerIds, *, available: int, buyer_units: Mapping[BuyerId, int], held: int
    ) -> Loaded | LoadRefused:
        state = self._loadable(slot, server)
        if isinstance(state, LoadRefused):
            return state
        state.available = available
        state.granted = available + held
        state.buyers.update(buyer_units)
        return Loaded()

    async def stamp(self, slot: Slot, server: ServerIds, *, now_ms: int) -> Loaded | LoadRefused:
        state = self._slots.setdefault(slot, SlotState())
        if state.stamp == (server, now_ms) and server == self.server:
            return Loaded()
        loadable = self._loadable(slot, server)
        if isinstance(loadable, LoadRefused):
            return loadable
        loadable.stamp = (server, now_ms)
        return Loaded()

    async def unlink(self, slot: Slot) -> None:
        self._slots.pop(slot, None)

    async def problems(self) -> Sequence[str]:
        return ()

    async def advice(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        """Nothing to close."""

    def _valid(self, slot: Slot) -> SlotState | Lost:
        state = self._slots.get(slot)
        if state is None or state.stamp is None or state.stamp[0] != self.server:
            return Lost(found=self.server)
        return state

    def _loadable(self, slot: Slot, server: ServerIds) -> SlotState | LoadRefused:
        state = self._slots.setdefault(slot, SlotState())
        if server != self.server or state.stamp is not None:
            return LoadRefused(found=self.server, stamped=state.stamp is not None)
        return state


def _new_server() -> ServerIds:
    return ServerIds(run_id=secrets.token_hex(20), replid=secrets.token_hex(20))
