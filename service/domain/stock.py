"""What the scripts say: one frozen value for each named reply of scripts/lua."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from service.domain.batch import BatchMessage
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId
from service.domain.sale import ServerIds


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One segment of a sale in one epoch: the key prefix of every script's keys."""

    sale_id: SaleId
    segment: int
    epoch: int


def slots_of(sale_id: SaleId, epoch: int, segments: int) -> list[Slot]:
    """All slots of a sale in one epoch."""
    return [Slot(sale_id=sale_id, segment=number, epoch=epoch) for number in range(segments)]


@dataclass(frozen=True, kw_only=True)
class Lost:
    """This is not the Redis that the loader stamped for this epoch: nothing was read or written (design §3.3)."""

    found: ServerIds


class RecordState(StrEnum):
    QUEUED = "queued"
    """Stock is deducted; no order is known here yet."""
    ORDERED = "ordered"
    """Stock is deducted and an order holds it."""
    ENDED = "ended"
    """Decided for good: it holds nothing and never will again."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a slot knows of a reservation id."""

    reservation_id: ReservationId
    state: RecordState
    batch_id: BatchId
    buyer_id: BuyerId
    quantity: int
    fingerprint: str
    created_at_ms: int


class No(StrEnum):
    """Why a slot gives a candidate no stock."""

    LIMIT_REACHED = "limit_reached"
    SEGMENT_EMPTY = "segment_empty"
    """Fewer units here than asked for: sale-wide sold out only if no other slot has any (design §3.1 step 3)."""
    PAST_DEADLINE = "past_deadline"
    """An older epoch's candidate, reserved again after its queue deadline: it is `ended` here."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A candidate without stock. `live` is the buyer's newest live reservation where the limit is the reason."""

    no: No
    live: Record | None = None
    units_held: bool = False
    """Whether any unit of this slot is held by someone: it may come back, so `sold_out` is not final."""


@dataclass(frozen=True, kw_only=True)
class Won:
    """The candidate got its units in this batch."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The id was decided before, in this or another batch: replay it."""

    record: Record


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """peek: nothing is known of this id and there seems to be stock: it goes into the half message."""


PeekAnswer = Undecided | Known | Refusal
ReserveAnswer = Won | Known | Refusal


@dataclass(frozen=True, kw_only=True)
class Peeked:
    answers: dict[ReservationId, PeekAnswer]


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """reserve.lua decided the batch, now or in an earlier call; `replayed` says which."""

    answers: dict[ReservationId, ReserveAnswer]
    replayed: bool


@dataclass(frozen=True, kw_only=True)
class Fenced:
    """A check-back fenced this batch: it never deducts. `known` has ids that other batches decided."""

    known: dict[ReservationId, Record]


@dataclass(frozen=True, kw_only=True)
class LateRules:
    """For a candidate of an older epoch that is reserved again (design §3.3): its deadline, looked at inside the
    script.

    A refused one is written `ended`, so that Redis knows of the rejection before SQL does.
    """

    deadline_ms: int


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """resolve.lua found the batch: who won in it."""

    winners: frozenset[ReservationId]


@dataclass(frozen=True, kw_only=True)
class FenceWritten:
    """resolve.lua found nothing, and wrote the fence (or found it): the batch may never deduct any more."""


@dataclass(frozen=True, kw_only=True)
class StoredBatch:
    """A decided batch with the body that reserve.lua stored, and what its slot knows of its winners now.

    The body goes with the last queued winner: then `message` has no candidates, and the decision's time as its own.
    """

    message: BatchMessage
    winners: dict[ReservationId, Record]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """found: decided batches by id; fenced or unknown ids are absent. unreadable: decided ones whose stored body this
    release cannot read, because a newer one wrote it."""

    found: dict[BatchId, StoredBatch]
    unreadable: frozenset[BatchId] = frozenset()


class Effect(StrEnum):
    """What becomes of a reservation's units in Redis once SQL has decided."""

    KEEP = "keep"
    """An order holds them: the record becomes `ordered`."""
    RETURN = "return"
    """They go back on sale, with the buyer's allowance."""
    WRITE_OFF = "write_off"
    """SQL never had them: the slot's `granted` falls with them, so that they are not sold again for ever."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The script ran. `changed` has the ids it changed now; the others were as wanted before."""

    changed: frozenset[ReservationId]


@dataclass(frozen=True, kw_only=True)
class Adjusted:
    """An adjustment is in the slot, now or since an earlier call."""


@dataclass(frozen=True, kw_only=True)
class TooFewLeft:
    """A decrease that the slot's available units could not bear when it was first asked for; no unit moved."""

    available: int


@dataclass(frozen=True, kw_only=True)
class SlotCount:
    """One instant of a slot, in one script: `granted = available + queued + ordered` (I1)."""

    granted: int
    available: int
    held: int
    queued: int
    ordered: int
    buyers_units: int
    undelivered_batches: int


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """load.lua wrote its chunk, or the stamp."""


@dataclass(frozen=True, kw_only=True)
class LoadRefused:
    """load.lua wrote nothing: another server answers, or this epoch is stamped already."""

    found: ServerIds
    stamped: bool
