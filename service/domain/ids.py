"""Ids: one type each, made before anything is written.

A reservation id says where it lives: `SALE.BBBBDDDD…` holds the sale, 20 bits of the buyer's hash (so that GET finds
the buyer's home segment) and 120 bits of SHA-256 over sale, buyer and idempotency key. The same three always give the
same id.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NewType

SaleId = NewType("SaleId", str)
BuyerId = NewType("BuyerId", str)
ReservationId = NewType("ReservationId", str)
BatchId = NewType("BatchId", str)
OrderNo = NewType("OrderNo", str)
PaymentId = NewType("PaymentId", str)
EventId = NewType("EventId", str)

SALE_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
"""A sale id is part of Redis keys, URLs and reservation ids: 1-48 of a-z, 0-9, - and _."""

BUYER_TAG_CHARS = 4
DIGEST_CHARS = 24
_LOCAL_PART = re.compile(rf"[a-z2-7]{{{BUYER_TAG_CHARS + DIGEST_CHARS}}}")


_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = tuple(first + second for first in _BASE32 for second in _BASE32)
"""Two characters for each value of 10 bits: base64.b32encode is slow Python, and every request has three of these."""


def _base32(data: bytes, chars: int) -> str:
    """The first characters of RFC 4648's base32 in small letters; their number is even."""
    bits = 5 * chars
    size = (bits + 7) // 8
    value = int.from_bytes(data[:size], "big") >> (8 * size - bits)
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(bits - 10, -1, -10)])


def buyer_tag(buyer_id: BuyerId) -> str:
    """The 20 bits of the buyer's hash that a reservation id carries, as 4 base32 characters."""
    return _base32(hashlib.sha256(buyer_id.encode()).digest(), BUYER_TAG_CHARS)


def reservation_id(sale_id: SaleId, buyer_id: BuyerId, key: str) -> ReservationId:
    """The id of this buyer's attempt under this idempotency key: the same inputs, the same id."""
    # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
    parts = b"".join([b"%d:%b" % (len(part), part) for part in (sale_id.encode(), buyer_id.encode(), key.encode())])
    digest = hashlib.sha256(parts).digest()
    return ReservationId(f"{sale_id}.{buyer_tag(buyer_id)}{_base32(digest, DIGEST_CHARS)}")


def unkeyed_reservation_id(sale_id: SaleId, buyer_id: BuyerId) -> ReservationId:
    """An id for a request without an idempotency key: new at each call."""
    return reservation_id(sale_id, buyer_id, "unkeyed:" + secrets.token_hex(16))


def parse_reservation_id(text: str) -> tuple[SaleId, str] | None:
    """`(sale id, local part)` of a well-formed reservation id, or None."""
    sale, _, local = text.partition(".")
    if not SALE_ID.fullmatch(sale) or not _LOCAL_PART.fullmatch(local):
        return None
    return SaleId(sale), local


def sale_of(id_: ReservationId) -> SaleId:
    return SaleId(id_.partition(".")[0])


def home_segment(id_: ReservationId, segments: int) -> int:
    """The buyer's home segment, from the hash bits that the id carries (design §3.9)."""
    if segments == 1:
        return 0
    tag = id_.partition(".")[2][:BUYER_TAG_CHARS]
    value = 0
    for char in tag:
        value = value * 32 + _BASE32.index(char)
    return value % segments


def new_batch_id() -> BatchId:
    """A new id for a half attempt: 100 random bits, 20 characters."""
    return BatchId(_base32(secrets.token_bytes(13), 20))


def order_no(id_: ReservationId) -> OrderNo:
    """A buyer-facing order number, derived so that a repeated order transaction gives the same one."""
    digest = hashlib.sha256(b"order:" + id_.encode()).digest()
    return OrderNo("DG-" + _base32(digest, 12).upper())


def event_id(id_: ReservationId, type_: str) -> EventId:
    """One id per change of a reservation: a repeated transaction cannot make a second event of it."""
    return EventId(_base32(hashlib.sha256(f"event:{type_}:{id_}".encode()).digest(), 26))
