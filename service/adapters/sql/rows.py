"""Rows to domain values and back: the one place that knows the columns' names beside tables.py."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row

from service.domain.event import Event, EventType
from service.domain.ids import BatchId, BuyerId, EventId, OrderNo, PaymentId, ReservationId, SaleId, sale_of
from service.domain.order import Order, Owed
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus
from service.domain.reservation import HOLDS_STOCK, Reason, Status
from service.domain.sale import Authority, OnRedisLoss, Sale, SaleRules, SaleStatus, ServerIds
from service.domain.stock import Effect, Record, RecordState
from service.ports.orders import Adjustment, ApiKey, StockMovement, StoredPayment

AnyRow = Row[Any]
Values = dict[str, object]

_metadata = msgspec.json.Decoder(dict[str, str])
_ids = msgspec.json.Decoder(frozenset[str])


def sale_of_row(row: AnyRow) -> Sale:
    lost = None if row.lost_run_id is None else ServerIds(run_id=row.lost_run_id, replid=row.lost_replid)
    return Sale(
        id=SaleId(row.id),
        rules=_rules_of_row(row),
        status=SaleStatus(row.status),
        authority=Authority(row.authority),
        epoch=row.epoch,
        epoch_started_at_ms=row.epoch_started_at_ms,
        initial=row.initial,
        adjusted=row.adjusted,
        available=row.available,
        wants_redis=row.wants_redis,
        sold_in_epoch=row.sold_in_epoch,
        older_deadline_ms=row.older_deadline_ms,
        lost=lost,
        lost_at_ms=row.lost_at_ms,
        created_at_ms=row.created_at_ms,
        segments=row.segments,
    )


def _rules_of_row(row: AnyRow) -> SaleRules:
    return SaleRules(
        sku=row.sku,
        stock=row.initial,
        price=row.price,
        currency=row.currency,
        limit_per_buyer=row.limit_per_buyer,
        opens_at_ms=row.opens_at_ms,
        closes_at_ms=row.closes_at_ms,
        payment_window_s=row.payment_window_s,
        queue_deadline_s=row.queue_deadline_s,
        on_redis_loss=OnRedisLoss(row.on_redis_loss),
        wanted_authority=Authority(row.wanted_authority),
        segments=row.wanted_segments,
    )


def values_of_rules(rules: SaleRules) -> Values:
    """The columns of the rules, without the stock: that is `initial`, written once."""
    return {
        "sku": rules.sku,
        "price": rules.price,
        "currency": rules.currency,
        "limit_per_buyer": rules.limit_per_buyer,
        "opens_at_ms": rules.opens_at_ms,
        "closes_at_ms": rules.closes_at_ms,
        "payment_window_s": rules.payment_window_s,
        "queue_deadline_s": rules.queue_deadline_s,
        "on_redis_loss": str(rules.on_redis_loss),
        "wanted_authority": str(rules.wanted_authority),
        "wanted_segments": rules.segments,
    }


def values_of_new_sale(sale_id: SaleId, rules: SaleRules, now_ms: int) -> Values:
    return {
        "id": sale_id,
        **values_of_rules(rules),
        "status": str(SaleStatus.DRAFT),
        "status_at_ms": now_ms,
        "authority": str(Authority.SQL),
        "epoch": 1,
        "epoch_started_at_ms": now_ms,
        "segments": rules.segments,
        "initial": rules.stock,
        "adjusted": 0,
        "available": rules.stock,
        "wants_redis": False,
        "sold_in_epoch": False,
        "created_at_ms": now_ms,
    }


def order_of_row(row: AnyRow) -> Order:
    return Order(
        id=ReservationId(row.id),
        sale_id=SaleId(row.sale_id),
        buyer_id=BuyerId(row.buyer_id),
        batch_id=None if row.batch_id is None else BatchId(row.batch_id),
        segment=row.segment,
        epoch=row.epoch,
        quantity=row.quantity,
        status=Status(row.status),
        reason=None if row.reason is None else Reason(row.reason),
        order_no=None if row.order_no is None else OrderNo(row.order_no),
        amount=row.amount,
        currency=row.currency,
        fingerprint=row.fingerprint,
        coupon_code=row.coupon_code,
        # `metadata` is also an attribute of SQLAlchemy's Row: by name
        metadata=_metadata.decode(text) if (text := row._mapping["metadata"]) is not None else None,
        created_at_ms=row.created_at_ms,
        ordered_at_ms=row.ordered_at_ms,
        expires_at_ms=row.expires_at_ms,
        window_extended=row.window_extended,
        paid_by=None if row.paid_by is None else PaymentId(row.paid_by),
        restocked=row.restocked,
    )


def values_of_order(order: Order) -> Values:
    """Every column of a new row."""
    return {
        "id": order.id,
        "sale_id": order.sale_id,
        "buyer_id": order.buyer_id,
        "batch_id": order.batch_id,
        "segment": order.segment,
        "epoch": order.epoch,
        "quantity": order.quantity,
        "currency": order.currency,
        "fingerprint": order.fingerprint,
        "coupon_code": order.coupon_code,
        "metadata": None if order.metadata is None else json_text(order.metadata),
        "created_at_ms": order.created_at_ms,
        "ordered_at_ms": order.ordered_at_ms,
        "version": 1,
        **values_that_change(order),
    }


def values_that_change(order: Order) -> Values:
    """The columns that a later state of the same order may change."""
    return {
        "status": str(order.status),
        "reason": None if order.reason is None else str(order.reason),
        "order_no": order.order_no,
        "amount": order.amount,
        "expires_at_ms": order.expires_at_ms,
        "window_extended": order.window_extended,
        "paid_by": order.paid_by,
        "restocked": order.restocked,
    }


def record_of_row(row: Row[*tuple[Any, ...]]) -> Record:
    """What a slot has to know of an id that has a row."""
    status = Status(row.status)
    holds = status in HOLDS_STOCK or (status is Status.REFUNDED and not row.restocked)
    return Record(
        reservation_id=ReservationId(row.id),
        state=RecordState.ORDERED if holds else RecordState.ENDED,
        batch_id=BatchId(row.batch_id or ""),
        buyer_id=BuyerId(row.buyer_id),
        quantity=row.quantity,
        fingerprint=row.fingerprint,
        created_at_ms=row.created_at_ms,
    )


def values_of_movement(movement: StockMovement) -> Values:
    return {
        "movement_key": movement.key,
        "sale_id": movement.sale_id,
        "kind": movement.kind,
        "delta": movement.delta,
        "reservation_id": movement.reservation_id,
        "at_ms": movement.at_ms,
    }


def event_of_row(row: AnyRow) -> Event:
    return Event(
        id=EventId(row.event_id),
        type=EventType(row.type),
        sale_id=SaleId(row.sale_id),
        reservation_id=ReservationId(row.reservation_id),
        body=row.body.encode(),
        created_at_ms=row.created_at_ms,
    )


def values_of_event(event: Event) -> Values:
    return {
        "event_id": event.id,
        "type": str(event.type),
        "sale_id": event.sale_id,
        "reservation_id": event.reservation_id,
        "body": event.body.decode(),
        "created_at_ms": event.created_at_ms,
        "sent": False,
    }


def owed_of_row(row: AnyRow) -> Owed:
    return Owed(
        reservation_id=ReservationId(row.reservation_id),
        sale_id=SaleId(row.sale_id),
        segment=row.segment,
        epoch=row.epoch,
        effect=Effect(row.effect),
    )


def values_of_owed(owed: Owed) -> Values:
    return {
        "reservation_id": owed.reservation_id,
        "sale_id": owed.sale_id,
        "segment": owed.segment,
        "epoch": owed.epoch,
        "effect": str(owed.effect),
    }


def payment_of_row(row: AnyRow) -> StoredPayment:
    payment = Payment(
        id=PaymentId(row.id),
        reservation_id=ReservationId(row.reservation_id),
        status=PaymentStatus(row.status),
        amount=row.amount,
        currency=row.currency,
    )
    return StoredPayment(payment=payment, outcome=PaymentOutcome(row.outcome), received_at_ms=row.received_at_ms)


def values_of_payment(stored: StoredPayment) -> Values:
    payment = stored.payment
    return {
        "id": payment.id,
        "sale_id": sale_of(payment.reservation_id),
        "reservation_id": payment.reservation_id,
        "status": str(payment.status),
        "amount": payment.amount,
        "currency": payment.currency,
        "outcome": str(stored.outcome),
        "received_at_ms": stored.received_at_ms,
    }


def adjustment_of_row(row: AnyRow) -> Adjustment:
    return Adjustment(
        id=row.id,
        sale_id=SaleId(row.sale_id),
        delta=row.delta,
        applied=row.applied,
        owed_epoch=row.owed_epoch,
        owed_units=row.owed_units,
    )


def key_of_row(row: AnyRow) -> ApiKey:
    return ApiKey(id=row.id, hash=row.hash, role=row.role, created_at_ms=row.created_at_ms)


def losers_of_text(text: str) -> frozenset[ReservationId]:
    return frozenset(ReservationId(id_) for id_ in _ids.decode(text))


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
