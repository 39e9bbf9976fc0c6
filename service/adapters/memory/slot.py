"""One slot of the in-memory stock, and the rules of scripts/lua once more, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from service.domain.batch import SCHEMA, BatchMessage, Candidate
from service.domain.ids import BatchId, BuyerId, ReservationId
from service.domain.sale import ServerIds
from service.domain.stock import (
    Effect,
    Known,
    No,
    PeekAnswer,
    Record,
    RecordState,
    Refusal,
    ReserveAnswer,
    Slot,
    StoredBatch,
    Undecided,
    Won,
)


@dataclass
class BatchState:
    decided_at_ms: int
    winners: list[ReservationId] = field(default_factory=list)
    losers: dict[ReservationId, No] = field(default_factory=dict)
    message: BatchMessage | None = None


@dataclass
class SlotState:
    """One slot in one epoch. Counters that Redis keeps are computed here, save `granted` and `available`."""

    stamp: tuple[ServerIds, int] | None = None
    granted: int = 0
    available: int = 0
    buyers: dict[BuyerId, int] = field(default_factory=dict)
    records: dict[ReservationId, Record] = field(default_factory=dict)
    batches: dict[BatchId, BatchState] = field(default_factory=dict)
    fences: set[BatchId] = field(default_factory=set)
    adjustments: set[str] = field(default_factory=set)
    refused_adjustments: set[str] = field(default_factory=set)

    def units(self, state: RecordState) -> int:
        return sum(record.quantity for record in self.records.values() if record.state is state)

    @property
    def held(self) -> int:
        return self.units(RecordState.QUEUED) + self.units(RecordState.ORDERED)

    def newest_live(self, buyer: BuyerId) -> Record | None:
        live = [it for it in self.records.values() if it.buyer_id == buyer and it.state is not RecordState.ENDED]
        return live[-1] if live else None

    def refusal(self, no: No, buyer: BuyerId) -> Refusal:
        live = self.newest_live(buyer) if no is No.LIMIT_REACHED else None
        return Refusal(no=no, live=live, units_held=self.held > 0)

    def refuse(self, candidate: Candidate, limit: int) -> No | None:
        if self.buyers.get(candidate.buyer_id, 0) + candidate.quantity > limit:
            return No.LIMIT_REACHED
        return No.SEGMENT_EMPTY if candidate.quantity > self.available else None

    def write(self, candidate: Candidate, batch: BatchMessage, state: RecordState) -> None:
        self.records[candidate.reservation_id] = Record(
            reservation_id=candidate.reservation_id,
            state=state,
            batch_id=batch.batch_id,
            buyer_id=candidate.buyer_id,
            quantity=candidate.quantity,
            fingerprint=candidate.fingerprint,
            created_at_ms=batch.created_at_ms,
        )

    def apply(self, id_: ReservationId, effect: Effect) -> bool:
        record = self.records[id_]
        if effect is Effect.KEEP:
            if record.state is not RecordState.QUEUED:
                return False
            self.records[id_] = replace(record, state=RecordState.ORDERED)
        else:
            if record.state is RecordState.ENDED:
                return False
            self.records[id_] = replace(record, state=RecordState.ENDED)
            self._give_back(record, effect)
        self._deliver(record.batch_id)
        return True

    def _give_back(self, record: Record, effect: Effect) -> None:
        if effect is Effect.RETURN:
            self.available += record.quantity
        else:
            self.granted -= record.quantity
        self.buyers[record.buyer_id] -= record.quantity

    def _deliver(self, batch_id: BatchId) -> None:
        batch = self.batches.get(batch_id)
        if batch is not None and not self.is_undelivered(batch):
            batch.message = None

    def is_undelivered(self, batch: BatchState) -> bool:
        return any(self.records[id_].state is RecordState.QUEUED for id_ in batch.winners)


def peek(state: SlotState, candidate: Candidate, limit: int) -> PeekAnswer:
    if (record := state.records.get(candidate.reservation_id)) is not None:
        return Known(record=record)
    no = state.refuse(candidate, limit)
    return Undecided() if no is None else state.refusal(no, candidate.buyer_id)


def is_decided(record: BatchState, id_: ReservationId) -> bool:
    return id_ in record.winners or id_ in record.losers


def decide(
    state: SlotState,
    record: BatchState,
    batch: BatchMessage,
    candidate: Candidate,
    *,
    no: No | None,
    write_ended: bool,
) -> None:
    id_ = candidate.reservation_id
    if no is not None:
        record.losers[id_] = no
        if write_ended:
            state.write(candidate, batch, RecordState.ENDED)
        return
    state.available -= candidate.quantity
    state.buyers[candidate.buyer_id] = state.buyers.get(candidate.buyer_id, 0) + candidate.quantity
    state.write(candidate, batch, RecordState.QUEUED)
    record.winners.append(id_)
    record.message = _with_candidates(record.message, batch)


def _with_candidates(earlier: BatchMessage | None, batch: BatchMessage) -> BatchMessage:
    if earlier is None:
        return batch
    candidates = {it.reservation_id: it for it in (*earlier.candidates, *batch.candidates)}
    return _replaced(earlier, tuple(candidates.values()))


def _replaced(message: BatchMessage, candidates: tuple[Candidate, ...]) -> BatchMessage:
    return BatchMessage(
        schema=message.schema,
        batch_id=message.batch_id,
        sale_id=message.sale_id,
        segment=message.segment,
        epoch=message.epoch,
        created_at_ms=message.created_at_ms,
        candidates=candidates,
    )


def reserve_answer(state: SlotState, record: BatchState, candidate: Candidate) -> ReserveAnswer:
    id_ = candidate.reservation_id
    if id_ in record.winners:
        return Won()
    if id_ in record.losers:
        return state.refusal(record.losers[id_], candidate.buyer_id)
    return Known(record=state.records[id_])


def stored(slot: Slot, state: SlotState, batch_id: BatchId) -> StoredBatch:
    batch = state.batches[batch_id]
    gone = BatchMessage(
        schema=SCHEMA,
        batch_id=batch_id,
        sale_id=slot.sale_id,
        segment=slot.segment,
        epoch=slot.epoch,
        created_at_ms=batch.decided_at_ms,
        candidates=(),
    )
    return StoredBatch(message=batch.message or gone, winners={id_: state.records[id_] for id_ in batch.winners})


def ended_unknown(id_: ReservationId, now_ms: int) -> Record:
    return Record(
        reservation_id=id_,
        state=RecordState.ENDED,
        batch_id=BatchId(""),
        buyer_id=BuyerId(""),
        quantity=0,
        fingerprint="",
        created_at_ms=now_ms,
    )
