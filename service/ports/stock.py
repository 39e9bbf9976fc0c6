"""Redis stock as the core sees it: one method a script. StockUnavailable where Redis does not answer in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

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
    Peeked,
    Record,
    Reserved,
    Slot,
    SlotCount,
    TooFewLeft,
)


class Stock(Protocol):
    async def server_ids(self, slot: Slot) -> ServerIds:
        """Who answers for this slot now."""

    async def peek(self, slot: Slot, candidates: Sequence[Candidate], limit_per_buyer: int) -> Peeked | Lost:
        """Read only: what is known of each candidate, or why it would get nothing now."""

    async def find(self, slot: Slot, reservation_ids: Sequence[ReservationId]) -> dict[ReservationId, Record] | Lost:
        """The records of these ids (peek.lua, without rules); absent ids are unknown to this slot."""

    async def reserve(
        self, slot: Slot, batch: BatchMessage, limit_per_buyer: int, late: LateRules | None = None
    ) -> Reserved | Fenced | Lost:
        """Decide the batch: deduct for the winners, record it. Never retried by a library. `slot` names the epoch to
        write in; with `late` the batch is of an older one, and what is refused is written `ended`."""

    async def resolve(self, slot: Slot, batch_id: BatchId) -> BatchRecord | FenceWritten | Lost:
        """Check-back: atomic read or fence."""

    async def batches(self, slot: Slot, batch_ids: Sequence[BatchId]) -> Batches | Lost:
        """The decided ones of these batches, with stored bodies and the present records of their winners."""

    async def undelivered(self, slot: Slot, decided_before_ms: int, limit: int) -> Batches | Lost:
        """Batches with queued winners, decided before this moment (Redis's clock), oldest first."""

    async def confirm(self, slot: Slot, effects: Mapping[ReservationId, Effect]) -> Applied | Lost:
        """Tell the slot what SQL decided of winners, of whatever batches. A record that is not live is left alone."""

    async def end(self, slot: Slot, effects: Mapping[ReservationId, Effect]) -> Applied | Lost:
        """Give units and allowance back (RETURN), or write them off: once, whoever calls and however often.

        An id that the slot does not know is written `ended`: it can never win here any more."""

    async def adjust(self, slot: Slot, adjustment_id: str, delta: int) -> Adjusted | TooFewLeft | Lost:
        """Change what the slot was granted, once an id. A refusal is replayed too, as long as the epoch lasts."""

    async def count(self, slot: Slot) -> SlotCount | Lost:
        """Every term of the slot at one instant."""

    async def load_records(self, slot: Slot, server: ServerIds, records: Sequence[Record]) -> Loaded | LoadRefused:
        """A chunk of the snapshot: decided ids, and the units and allowance that live ones hold. Repeatable."""

    async def load_stock(
        self, slot: Slot, server: ServerIds, *, available: int, buyer_units: Mapping[BuyerId, int], held: int
    ) -> Loaded | LoadRefused:
        """The snapshot's counters: `granted = available + held`. Repeatable."""

    async def stamp(self, slot: Slot, server: ServerIds, *, now_ms: int) -> Loaded | LoadRefused:
        """Write `meta`, last: from now on the slot is valid in its epoch. Loaded again if this very stamp is there."""

    async def unlink(self, slot: Slot) -> None:
        """Remove an older epoch's keys, `meta` first."""

    async def problems(self) -> Sequence[str]:
        """One sentence for each setting of this server that would lose stock: eviction, no persistence. Empty: none."""

    async def advice(self) -> Sequence[str]:
        """One sentence for each of those settings that cannot be seen here: no reason to sell nothing."""

    async def close(self) -> None: ...
