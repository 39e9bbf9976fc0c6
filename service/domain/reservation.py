"""The reservation as a storefront sees it: its states as one table, and why it ended."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from service.domain.ids import BuyerId, OrderNo, ReservationId, SaleId


class Status(StrEnum):
    QUEUED = "queued"
    AWAITING_PAYMENT = "awaiting_payment"
    PAID = "paid"
    REFUNDED = "refunded"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    UNDER_REVIEW = "under_review"


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.AWAITING_PAYMENT, Status.CANCELLED, Status.REJECTED, Status.UNDER_REVIEW}),
    Status.AWAITING_PAYMENT: frozenset({Status.PAID, Status.CANCELLED, Status.UNDER_REVIEW}),
    Status.PAID: frozenset({Status.REFUNDED, Status.UNDER_REVIEW}),
    Status.UNDER_REVIEW: frozenset({Status.PAID, Status.REFUNDED, Status.CANCELLED, Status.REJECTED}),
    Status.REFUNDED: frozenset(),
    Status.CANCELLED: frozenset(),
    Status.REJECTED: frozenset(),
}
"""Design §1: no other transition exists."""

FINAL = frozenset(status for status, onward in TRANSITIONS.items() if not onward)
"""Nothing follows these: `refunded`, `cancelled`, `rejected`."""

HOLDS_STOCK = frozenset({Status.QUEUED, Status.AWAITING_PAYMENT, Status.PAID, Status.UNDER_REVIEW})
"""A reservation in one of these keeps its units and its buyer's allowance."""


class Reason(StrEnum):
    """Why a reservation ended. Part of the public contract: values are never reused."""

    BUYER_CANCELLED = "buyer_cancelled"
    OPERATOR_CANCELLED = "operator_cancelled"
    PARTICIPANT_CANCELLED = "participant_cancelled"
    PAYMENT_TIMEOUT = "payment_timeout"
    NOT_CONFIRMED = "not_confirmed"
    SOLD_OUT = "sold_out"
    LIMIT_REACHED = "limit_reached"
    FULFILMENT_FAILED = "fulfilment_failed"
    PAYMENT_REFUNDED = "payment_refunded"


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET: what every store together says of an id.

    `amount` is in minor units of `currency`; times are UTC milliseconds since the epoch.
    """

    id: ReservationId
    sale_id: SaleId
    buyer_id: BuyerId
    quantity: int
    status: Status
    reason: Reason | None = None
    order_no: OrderNo | None = None
    amount: int
    currency: str
    created_at_ms: int
    expires_at_ms: int | None = None
