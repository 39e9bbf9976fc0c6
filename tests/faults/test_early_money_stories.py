"""Payments that come before their order, or without one: applied when it appears, refunded when it cannot (I6)."""

from __future__ import annotations

import pytest

from service.domain.payment import PaymentOutcome
from tests.fixtures.sql import id_of
from tests.fixtures.stage import Stage

pytestmark = [pytest.mark.faults, pytest.mark.server]


async def test_a_payment_that_comes_before_its_order_pays_it_when_it_appears(stage: Stage) -> None:
    await stage.process("keeper")
    await stage.sale()
    anna = await stage.reserve("anna")
    assert anna.code == "queued"
    assert await stage.pay(anna.reservation_id, "pay-1") is PaymentOutcome.WAITING
    assert await stage.pay(anna.reservation_id, "pay-1") is PaymentOutcome.WAITING
    stage.first.start("order")
    await stage.becomes(anna.reservation_id, "paid")
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.payments_applied, sql.payments_waiting, sql.refunds) == (1, 0, 0)


async def test_of_two_payments_before_the_order_one_pays_and_one_is_refunded(stage: Stage) -> None:
    await stage.process("keeper")
    await stage.sale()
    anna = await stage.reserve("anna")
    for payment in ("pay-1", "pay-2"):
        assert await stage.pay(anna.reservation_id, payment) is PaymentOutcome.WAITING
    stage.first.start("order")
    await stage.becomes(anna.reservation_id, "paid")
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.payments_applied, sql.payments_waiting, sql.refunds) == (1, 0, 1)


async def test_a_payment_of_a_reservation_cancelled_in_the_queue_is_refunded(stage: Stage) -> None:
    await stage.process("keeper")
    await stage.sale()
    anna = await stage.reserve("anna")
    assert await stage.pay(anna.reservation_id, "pay-1") is PaymentOutcome.WAITING
    assert (await stage.cancel(anna.reservation_id)).code == "cancelled"
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.payments_succeeded, sql.payments_waiting, sql.refunds, sql.available) == (1, 0, 1, 10)


async def test_a_payment_for_an_id_that_nobody_knows_is_refunded_after_the_deadline(stage: Stage) -> None:
    await stage.process("order", "keeper")
    sale = await stage.sale()
    unknown = id_of("nobody")
    assert await stage.pay(unknown, "pay-1") is PaymentOutcome.WAITING
    await stage.first.sweep("payments")
    assert (await stage.ledger()).sql.payments_waiting == 1
    await stage.jump(sale.rules.queue_deadline_s + stage.settings.not_found_margin_s + 1)
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.payments_succeeded, sql.payments_waiting, sql.refunds) == (1, 0, 1)
