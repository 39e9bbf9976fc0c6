"""The batch message: what one half message carries. Its schema is public (docs/topics.md): consumers of
`dropgate-order` read it."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, TypeVar

import msgspec

from service.domain.errors import UndecodableMessage, UnknownSchema
from service.domain.ids import SALE_ID, BatchId, BuyerId, ReservationId, SaleId, parse_reservation_id

SCHEMA = 1
BATCH_MAX = 128
"""Candidates a batch: more would make one Lua call hold the slot for over a millisecond (design §3.1)."""
UNITS_MAX = 10**9
COUNT_MAX = 10**9
TIME_MAX_MS = 10**14
"""Far beyond any sale, epoch and date, and within what SQL's and Lua's numbers hold exactly."""
BATCH_ID_MAX = 64
"""Ours have 20 characters; a column takes 255."""


_WORD = re.compile(r"[A-Za-z0-9_-]+").fullmatch


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One request of a batch: all that its order needs. `fingerprint` is of the body, for idempotency_key_reused."""

    reservation_id: ReservationId
    buyer_id: BuyerId
    quantity: Annotated[int, msgspec.Meta(ge=1, le=UNITS_MAX)]
    fingerprint: str
    coupon_code: str | None = None
    metadata: dict[str, str] | None = None


class BatchMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A half message's body, self-contained (design §3.1 step 4). `created_at_ms` is UTC milliseconds.

    Whether the segment is one of the sale's and the epoch one that was, only its row can tell.
    """

    schema: int
    batch_id: BatchId
    sale_id: SaleId
    segment: Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
    created_at_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_MS)]
    candidates: tuple[Candidate, ...]


class PaymentTimeoutMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The delay message of one batch: the ids to look at, and when they are due (UTC milliseconds)."""

    schema: int
    sale_id: SaleId
    reservation_ids: tuple[ReservationId, ...]
    expires_at_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_MS)]


class _Schema(msgspec.Struct):
    schema: int


def encode(message: BatchMessage | PaymentTimeoutMessage) -> bytes:
    return msgspec.json.encode(message)


def decode_batch(body: bytes) -> BatchMessage:
    """The batch of a body. UndecodableMessage: nothing that this or another release has written. UnknownSchema: of
    another release."""
    batch = _decode(body, BatchMessage)
    if (problem := _problem(batch)) is not None:
        raise UndecodableMessage(problem)
    return batch


def _problem(batch: BatchMessage) -> str | None:
    """What no sender of ours would write, and what stores and keys could not bear."""
    ids = [candidate.reservation_id for candidate in batch.candidates]
    checks = (
        (SALE_ID.fullmatch(batch.sale_id) is not None, "the sale id"),
        (is_batch_id(batch.batch_id), "the batch id"),
        (1 <= len(ids) <= BATCH_MAX, f"{len(ids)} candidates"),
        (len(set(ids)) == len(ids), "a candidate twice"),
        (all(_is_of(batch.sale_id, id_) for id_ in ids), "a candidate of another sale"),
    )
    return next((problem for holds, problem in checks if not holds), None)


def is_batch_id(text: str) -> bool:
    return 0 < len(text) <= BATCH_ID_MAX and _WORD(text) is not None


def _is_of(sale_id: SaleId, id_: ReservationId) -> bool:
    parsed = parse_reservation_id(id_)
    return parsed is not None and parsed[0] == sale_id


def decode_payment_timeout(body: bytes) -> PaymentTimeoutMessage:
    return _decode(body, PaymentTimeoutMessage)


_Body = TypeVar("_Body", BatchMessage, PaymentTimeoutMessage)


def _decode(body: bytes, type_: type[_Body]) -> _Body:
    try:
        found = msgspec.json.decode(body, type=_Schema).schema
        if found != SCHEMA:
            raise UnknownSchema(found)
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UndecodableMessage(str(error)) from error


def fingerprint(quantity: int, coupon_code: str | None, metadata: dict[str, str] | None) -> str:
    """80 bits over what a buyer asked for: the same key with another fingerprint is a misuse of the key."""
    canonical = msgspec.json.encode([quantity, coupon_code, sorted((metadata or {}).items())])
    return hashlib.sha256(canonical).hexdigest()[:20]
