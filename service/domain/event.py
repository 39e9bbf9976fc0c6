"""Events of the order topic, CloudEvents 1.0 (design §3.7). The body of `data` is public: docs/topics.md."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from service.domain.ids import EventId, ReservationId, SaleId, event_id
from service.domain.order import Order
from service.domain.payment import Payment, RefundReason
from service.domain.reservation import Status


class EventType(StrEnum):
    CREATED = "order.created"
    PAID = "order.paid"
    CANCELLED = "order.cancelled"
    REJECTED = "order.rejected"
    REFUND_REQUIRED = "order.refund_required"
    REFUNDED = "order.refunded"
    UNDER_REVIEW = "order.under_review"


EVENT_OF: dict[Status, EventType] = {
    Status.AWAITING_PAYMENT: EventType.CREATED,
    Status.PAID: EventType.PAID,
    Status.CANCELLED: EventType.CANCELLED,
    Status.REJECTED: EventType.REJECTED,
    Status.REFUNDED: EventType.REFUNDED,
    Status.UNDER_REVIEW: EventType.UNDER_REVIEW,
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of the outbox: `body` is the CloudEvent as JSON, `key` its FIFO group (the reservation)."""

    id: EventId
    type: EventType
    sale_id: SaleId
    reservation_id: ReservationId
    body: bytes
    created_at_ms: int


def event_of_order(order: Order, now_ms: int) -> Event:
    """The event of the state an order has just taken."""
    type_ = EVENT_OF[order.status]
    return _event(
        event_id(order.id, type_),
        type_,
        sale_id=order.sale_id,
        reservation_id=order.id,
        data=_order_data(order),
        now_ms=now_ms,
    )


def event_of_refund(payment: Payment, sale_id: SaleId, reason: RefundReason, now_ms: int) -> Event:
    """`order.refund_required`: money was taken that no order can keep."""
    type_ = EventType.REFUND_REQUIRED
    data = {
        "reservation_id": payment.reservation_id,
        "payment_id": payment.id,
        "amount": payment.amount,
        "currency": payment.currency,
        "reason": str(reason),
    }
    id_ = event_id(ReservationId(f"{payment.reservation_id}/{payment.id}"), type_)
    return _event(id_, type_, sale_id=sale_id, reservation_id=payment.reservation_id, data=data, now_ms=now_ms)


def rfc3339(at_ms: int) -> str:
    """UTC with milliseconds: 2026-01-31T12:00:00.123Z."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _order_data(order: Order) -> dict[str, object]:
    waits = order.status is Status.AWAITING_PAYMENT
    return {
        "reservation_id": order.id,
        "order_no": order.order_no,
        "buyer_id": order.buyer_id,
        "quantity": order.quantity,
        "amount": order.amount,
        "currency": order.currency,
        "status": str(order.status),
        "reason": None if order.reason is None else str(order.reason),
        "coupon_code": order.coupon_code,
        "metadata": order.metadata,
        "expires_at": rfc3339(order.expires_at_ms) if waits and order.expires_at_ms is not None else None,
        "payment_id": order.paid_by,
    }


def _event(
    id_: EventId,
    type_: EventType,
    *,
    sale_id: SaleId,
    reservation_id: ReservationId,
    data: dict[str, object],
    now_ms: int,
) -> Event:
    envelope = {
        "specversion": "1.0",
        "id": id_,
        "source": f"/dropgate/sales/{sale_id}",
        "type": str(type_),
        "subject": reservation_id,
        "time": rfc3339(now_ms),
        "datacontenttype": "application/json",
        "data": data,
    }
    return Event(
        id=id_,
        type=type_,
        sale_id=sale_id,
        reservation_id=reservation_id,
        body=msgspec.json.encode(envelope),
        created_at_ms=now_ms,
    )
