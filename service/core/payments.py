"""Money (design §3.6, I6): a signed success is stored before it is answered, and ends in one paid order or one
refund."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from service.domain.errors import InvalidRequest, OutcomeUnknown
from service.domain.event import event_of_order, event_of_refund
from service.domain.ids import parse_reservation_id, sale_of
from service.domain.order import Order
from service.domain.payment import (
    KeepWaiting,
    Payment,
    PaymentOutcome,
    PaymentStatus,
    PayOrder,
    RefundPayment,
    RefundReason,
    decide_payment,
)
from service.domain.reservation import Status
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleTransaction, StoredPayment

LOST_RACES_MAX = 3
"""A conditional update can lose to a cancel once, and a paid or final row never changes back: more is a bug."""


class PaymentService:
    def __init__(self, orders: OrderStore, clock: Clock) -> None:
        self._orders = orders
        self._clock = clock

    async def receive(self, payment: Payment) -> PaymentOutcome:
        """What became of a validly signed report. The same report again gives the same answer and does nothing.

        Money for something that is not the id of a reservation is money all the same: it becomes a refund (I6).
        """
        if payment.status is not PaymentStatus.SUCCEEDED:
            log(
                Action.PAYMENT_STORED,
                payment_id=payment.id,
                reservation_id=payment.reservation_id,
                status=payment.status,
            )
            metrics.PAYMENTS.labels(PaymentOutcome.RECORDED.value).inc()
            return PaymentOutcome.RECORDED

        may_yet_appear = parse_reservation_id(payment.reservation_id) is not None

        async def work(transaction: SaleTransaction) -> PaymentOutcome:
            stored = await transaction.payment(payment.id)
            if stored is not None:
                return _same_again(stored, payment)
            now_ms = self._clock.now_ms()
            waiting = StoredPayment(payment=payment, outcome=PaymentOutcome.WAITING, received_at_ms=now_ms)
            await transaction.insert_payment(waiting)
            order = (await transaction.orders([payment.reservation_id])).get(payment.reservation_id)
            return await apply_payment(transaction, payment, order, may_yet_appear=may_yet_appear, now_ms=now_ms)

        outcome = await self._orders.transact([], work)
        metrics.PAYMENTS.labels(outcome.value).inc()
        log(
            Action.PAYMENT_STORED,
            payment_id=payment.id,
            reservation_id=payment.reservation_id,
            status=payment.status,
            outcome=outcome,
        )
        return outcome

    async def settle_waiting(self, stored: StoredPayment, *, may_yet_appear: bool) -> PaymentOutcome:
        """The keeper's look at a payment whose order was not there: apply it, refund it, or leave it waiting."""
        sale_id = sale_of(stored.payment.reservation_id)

        async def work(transaction: SaleTransaction) -> PaymentOutcome:
            payment = await transaction.payment(stored.payment.id)
            if payment is None or payment.outcome is not PaymentOutcome.WAITING:
                return PaymentOutcome.RECORDED if payment is None else payment.outcome
            id_ = stored.payment.reservation_id
            order = (await transaction.orders([id_])).get(id_)
            return await apply_payment(
                transaction, stored.payment, order, may_yet_appear=may_yet_appear, now_ms=self._clock.now_ms()
            )

        return await self._orders.transact([sale_id], work)


def _same_again(stored: StoredPayment, payment: Payment) -> PaymentOutcome:
    if stored.payment != payment:
        raise InvalidRequest("payment_id", "this payment was reported before with other facts")
    return stored.outcome


async def apply_payment(
    transaction: SaleTransaction, payment: Payment, order: Order | None, *, may_yet_appear: bool, now_ms: int
) -> PaymentOutcome:
    """Inside a transaction that holds the stored payment: what it does to its order, and the record of that."""
    outcome = await _apply(transaction, payment, order, may_yet_appear=may_yet_appear, now_ms=now_ms)
    if outcome is not PaymentOutcome.WAITING:
        await transaction.resolve_payment(payment.id, outcome, now_ms)
    return outcome


async def _apply(
    transaction: SaleTransaction, payment: Payment, order: Order | None, *, may_yet_appear: bool, now_ms: int
) -> PaymentOutcome:
    for _ in range(LOST_RACES_MAX):
        decision = decide_payment(payment, order, may_yet_appear=may_yet_appear)
        match decision:
            case KeepWaiting():
                return PaymentOutcome.WAITING
            case RefundPayment(reason=reason):
                return await _refund(transaction, payment, reason, now_ms)
            case PayOrder():
                if order is not None and await _pay(transaction, payment, order, now_ms):
                    return PaymentOutcome.APPLIED
                order = (await transaction.orders([payment.reservation_id])).get(payment.reservation_id)
            case unreachable:
                assert_never(unreachable)
    raise OutcomeUnknown(payment.reservation_id)


async def _pay(transaction: SaleTransaction, payment: Payment, order: Order, now_ms: int) -> bool:
    paid = replace(order, status=Status.PAID, paid_by=payment.id)
    if not await transaction.replace_order(paid, expected=Status.AWAITING_PAYMENT):
        return False
    await transaction.emit([event_of_order(paid, now_ms)])
    return True


async def _refund(transaction: SaleTransaction, payment: Payment, reason: RefundReason, now_ms: int) -> PaymentOutcome:
    await transaction.insert_refund(payment, reason, now_ms)
    await transaction.emit([event_of_refund(payment, sale_of(payment.reservation_id), reason, now_ms)])
    return PaymentOutcome.REFUND_REQUIRED


async def refund_applied_payment(transaction: SaleTransaction, order: Order, now_ms: int) -> None:
    """A paid order is given up: its payment becomes the one refund that is owed to the buyer (I6)."""
    stored = None if order.paid_by is None else await transaction.payment(order.paid_by)
    if stored is None:
        return
    await _refund(transaction, stored.payment, RefundReason.ORDER_REFUNDED, now_ms)
    await transaction.resolve_payment(stored.payment.id, PaymentOutcome.REFUND_REQUIRED, now_ms)
