"""The batch message: what one half message carries. Its schema is public (docs/topics.md): consumers of
`dropgate-order` read it."""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeVar

import msgspec

from service.domain.errors import UndecodableMessage
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId

SCHEMA = 1
BATCH_MAX = 128
"""Candidates a batch: more would make one Lua call hold the slot for over a millisecond (design §3.1)."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One request of a batch: all that its order needs. `fingerprint` is of the body, for idempotency_key_reused."""

    reservation_id: ReservationId
    buyer_id: BuyerId
    quantity: Annotated[int, msgspec.Meta(ge=1)]
    fingerprint: str
    coupon_code: str | None = None
    metadata: dict[str, str] | None = None


class BatchMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A half message's body, self-contained (design §3.1 step 4). `created_at_ms` is UTC milliseconds."""

    schema: int
    batch_id: BatchId
    sale_id: SaleId
    segment: int
    epoch: int
    created_at_ms: int
    candidates: tuple[Candidate, ...]


class PaymentTimeoutMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The delay message of one batch: the ids to look at, and when they are due (UTC milliseconds)."""

    schema: int
    sale_id: SaleId
    reservation_ids: tuple[ReservationId, ...]
    expires_at_ms: int


class _Schema(msgspec.Struct):
    schema: int


def encode(message: BatchMessage | PaymentTimeoutMessage) -> bytes:
    return msgspec.json.encode(message)


def decode_batch(body: bytes) -> BatchMessage:
    """The batch of a body, or UndecodableMessage: unreadable, or of a schema this release does not know."""
    return _decode(body, BatchMessage)


def decode_payment_timeout(body: bytes) -> PaymentTimeoutMessage:
    return _decode(body, PaymentTimeoutMessage)


_Body = TypeVar("_Body", BatchMessage, PaymentTimeoutMessage)


def _decode(body: bytes, type_: type[_Body]) -> _Body:
    try:
        found = msgspec.json.decode(body, type=_Schema).schema
        if found != SCHEMA:
            raise UndecodableMessage("unknown schema", found)
        return msgspec.json.decode(body, type=type_)
    except msgspec.MsgspecError as error:
        raise UndecodableMessage(str(error)) from error


def fingerprint(quantity: int, coupon_code: str | None, metadata: dict[str, str] | None) -> str:
    """80 bits over what a buyer asked for: the same key with another fingerprint is a misuse of the key."""
    canonical = msgspec.json.encode([quantity, coupon_code, sorted((metadata or {}).items())])
    return hashlib.sha256(canonical).hexdigest()[:20]
