"""Money: what a payment does to an order (design §3.6, I6). Each success ends in one paid order or exactly one
refund."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from service.domain.ids import PaymentId, ReservationId
from service.domain.order import Order
from service.domain.reservation import Status


class PaymentStatus(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUNDED = "refunded"


@dataclass(frozen=True, kw_only=True)
class Payment:
    """A validly signed report of the payment side. `amount` is in minor units of `currency`."""

    id: PaymentId
    reservation_id: ReservationId
    status: PaymentStatus
    amount: int
    currency: str


class PaymentOutcome(StrEnum):
    """What became of a stored payment; the value of `applied` in the reply."""

    APPLIED = "applied"
    """Its order is paid."""
    WAITING = "waiting"
    """No row yet: it is applied when one appears, or refunded when none can any more."""
    REFUND_REQUIRED = "refund_required"
    """Exactly one refund record exists for it."""
    RECORDED = "recorded"
    """Nothing follows from it: a failed payment, or a report of a refund that was asked for."""


class RefundReason(StrEnum):
    ORDER_CANCELLED = "order_cancelled"
    ORDER_REJECTED = "order_rejected"
    ORDER_REFUNDED = "order_refunded"
    ALREADY_PAID = "already_paid"
    AMOUNT_MISMATCH = "amount_mismatch"
    NO_ORDER = "no_order"
    UNDER_REVIEW = "under_review"


@dataclass(frozen=True, kw_only=True)
class PayOrder:
    """The order awaits payment and the money is right: a conditional update decides against a concurrent cancel."""


@dataclass(frozen=True, kw_only=True)
class RefundPayment:
    reason: RefundReason


@dataclass(frozen=True, kw_only=True)
class KeepWaiting:
    pass


PaymentDecision = PayOrder | RefundPayment | KeepWaiting

_REFUND_OF: dict[Status, RefundReason] = {
    Status.CANCELLED: RefundReason.ORDER_CANCELLED,
    Status.REJECTED: RefundReason.ORDER_REJECTED,
    Status.REFUNDED: RefundReason.ORDER_REFUNDED,
    Status.PAID: RefundReason.ALREADY_PAID,
    Status.UNDER_REVIEW: RefundReason.UNDER_REVIEW,
}


def decide_payment(payment: Payment, order: Order | None, *, may_yet_appear: bool) -> PaymentDecision:
    """What a succeeded payment does, given the row of its reservation (None: no row)."""
    if order is None:
        return KeepWaiting() if may_yet_appear else RefundPayment(reason=RefundReason.NO_ORDER)
    if order.status in _REFUND_OF:
        return RefundPayment(reason=_REFUND_OF[order.status])
    if (payment.amount, payment.currency) != (order.amount, order.currency):
        return RefundPayment(reason=RefundReason.AMOUNT_MISMATCH)
    return PayOrder()
