"""Each success ends in one paid order or in exactly one refund (design §3.6, I6)."""

from __future__ import annotations

import pytest

from service.domain.payment import KeepWaiting, PayOrder, RefundPayment, RefundReason, decide_payment
from service.domain.reservation import Status
from tests.fixtures.domain import a_payment, an_order


def test_the_right_money_pays_an_order_that_awaits_it() -> None:
    assert decide_payment(a_payment(), an_order(), may_yet_appear=True) == PayOrder()


@pytest.mark.parametrize(("amount", "currency"), [(4_989, "EUR"), (4_991, "EUR"), (4_990, "USD"), (0, "EUR")])
def test_wrong_money_is_refunded_whole(amount: int, currency: str) -> None:
    payment = a_payment(amount=amount, currency=currency)
    refund = RefundPayment(reason=RefundReason.AMOUNT_MISMATCH)
    assert decide_payment(payment, an_order(), may_yet_appear=True) == refund


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.CANCELLED, RefundReason.ORDER_CANCELLED),
        (Status.REJECTED, RefundReason.ORDER_REJECTED),
        (Status.REFUNDED, RefundReason.ORDER_REFUNDED),
        (Status.PAID, RefundReason.ALREADY_PAID),
        (Status.UNDER_REVIEW, RefundReason.UNDER_REVIEW),
    ],
)
@pytest.mark.parametrize("amount", [4_990, 1])
def test_money_for_an_order_that_cannot_take_it_is_refunded(status: Status, reason: RefundReason, amount: int) -> None:
    decision = decide_payment(a_payment(amount=amount), an_order(status), may_yet_appear=True)
    assert decision == RefundPayment(reason=reason)


def test_a_payment_waits_for_its_order_as_long_as_one_may_appear() -> None:
    assert decide_payment(a_payment(), None, may_yet_appear=True) == KeepWaiting()
    refund = RefundPayment(reason=RefundReason.NO_ORDER)
    assert decide_payment(a_payment(), None, may_yet_appear=False) == refund
