"""Payments against time-outs and cancellations, in every order: one paid order or exactly one refund (I4, I6)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from service.domain.batch import SCHEMA, PaymentTimeoutMessage, encode
from service.domain.errors import InvalidRequest
from service.domain.ids import PaymentId, ReservationId
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus
from service.domain.reservation import Reason, Status
from service.ports.messaging import OutgoingMessage
from tests.fixtures.stacks import ON_BOTH_STACKS
from tests.fixtures.stage import SALE, Process, Stage
from tests.fixtures.unpaid import WINDOW_S, shop_with_orders

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.faults,
    pytest.mark.server,
    ON_BOTH_STACKS,
]

PRICE = 4_990
RACE_S = 0.020

LATE = "pay-late"


def payment_of(id_: ReservationId, payment: str, *, amount: int = PRICE, currency: str = "EUR") -> Payment:
    return Payment(
        id=PaymentId(payment), reservation_id=id_, status=PaymentStatus.SUCCEEDED, amount=amount, currency=currency
    )


async def receive(process: Process, payment: Payment) -> PaymentOutcome:
    return await process.cases.payments.receive(payment)


async def time_out(process: Process, id_: ReservationId) -> None:
    await process.cases.endings.cancel_expired([(await process.adapters.orders.orders([id_]))[id_]])


async def send_time_outs(stage: Stage, ids: Sequence[ReservationId], times: int) -> None:
    body = PaymentTimeoutMessage(schema=SCHEMA, sale_id=SALE, reservation_ids=tuple(ids), expires_at_ms=1)
    for _ in range(times):
        topic = stage.topics.payment_timeout.name
        message = OutgoingMessage(topic=topic, body=encode(body), key="again", deliver_at_ms=1)
        await stage.first.adapters.transport.publisher().publish([message])


# --- F18 --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_payment_and_a_time_out_in_the_same_moment_end_in_one_of_the_two(stage: Stage) -> None:
    """300 rounds, in two processes, within 20 ms of each other in random order."""
    ids = await shop_with_orders(stage, 300)
    payer, canceller = stage.first, await stage.process()
    await stage.jump(WINDOW_S + 1)

    async def round_of(id_: ReservationId) -> PaymentOutcome:
        async def later(seconds: float) -> None:
            await asyncio.sleep(seconds)
            await time_out(canceller, id_)

        timing_out = asyncio.create_task(later(random.uniform(0, RACE_S)))
        await asyncio.sleep(random.uniform(0, RACE_S))
        outcome = await receive(payer, payment_of(id_, f"pay-{id_}"))
        await timing_out
        return outcome

    outcomes = {id_: await round_of(id_) for id_ in ids}
    orders = await stage.orders(ids)
    for id_, outcome in outcomes.items():
        assert (orders[id_].status, outcome) in {
            (Status.PAID, PaymentOutcome.APPLIED),
            (Status.CANCELLED, PaymentOutcome.REFUND_REQUIRED),
        }
    cancelled = Counter(outcomes.values())[PaymentOutcome.REFUND_REQUIRED]
    assert 0 < cancelled < 300, "both were first at times"
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.refunds, sql.paid, sql.available) == (cancelled, 300 - cancelled, cancelled)


async def test_a_callback_that_comes_three_times_at_once_pays_once(stage: Stage) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    rival = await stage.process()
    payment = payment_of(id_, "pay-1")
    outcomes = await asyncio.gather(*[receive(process, payment) for process in (stage.first, rival, stage.first)])
    assert set(outcomes) == {PaymentOutcome.APPLIED}
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.payments_succeeded, sql.paid, sql.refunds) == (1, 1, 0)


async def test_a_second_payment_of_a_paid_order_is_refunded(stage: Stage) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    assert await receive(stage.first, payment_of(id_, "pay-1")) is PaymentOutcome.APPLIED
    assert await receive(stage.first, payment_of(id_, "pay-2")) is PaymentOutcome.REFUND_REQUIRED
    await stage.quiet()
    assert (await stage.orders([id_]))[id_].paid_by == "pay-1"


async def test_money_that_comes_ten_minutes_after_the_cancel_is_refunded_once_and_moves_no_stock(stage: Stage) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    await stage.cancel(id_)
    await stage.jump(600)
    for _ in range(3):
        assert await receive(stage.first, payment_of(id_, LATE)) is PaymentOutcome.REFUND_REQUIRED
    await stage.becomes(id_, "cancelled")
    await stage.quiet()
    ledger = await stage.ledger()
    assert (ledger.sql.refunds, ledger.sql.available, ledger.slots[0] and ledger.slots[0].available) == (1, 1, 1)


async def test_time_out_messages_after_the_payment_change_nothing(stage: Stage) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    await receive(stage.first, payment_of(id_, "pay-1"))
    await send_time_outs(stage, [id_], 5)
    await stage.jump(WINDOW_S + 1)
    await stage.quiet()
    await stage.becomes(id_, "paid")


@pytest.mark.parametrize(("amount", "currency"), [(PRICE - 1, "EUR"), (PRICE + 1, "EUR"), (PRICE, "USD")])
async def test_the_wrong_money_is_refunded_once_and_the_right_money_still_pays(
    stage: Stage, amount: int, currency: str
) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    wrong = payment_of(id_, "pay-wrong", amount=amount, currency=currency)
    for _ in range(2):
        assert await receive(stage.first, wrong) is PaymentOutcome.REFUND_REQUIRED
    with pytest.raises(InvalidRequest):
        await receive(stage.first, payment_of(id_, "pay-wrong"))
    assert await receive(stage.first, payment_of(id_, "pay-right")) is PaymentOutcome.APPLIED
    await stage.quiet()
    sql = (await stage.ledger()).sql
    assert (sql.refunds, sql.paid) == (1, 1)


# --- F19 --------------------------------------------------------------------------------------------------------------


async def test_whoever_ends_an_unpaid_order_and_however_often_its_unit_comes_back_once(stage: Stage) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    rival = await stage.process("timeout")
    stage.first.start("timeout")
    await stage.jump(WINDOW_S + 1)

    await asyncio.gather(
        *[stage.cancel(id_, at=process) for process in (stage.first, rival, stage.first)],
        send_time_outs(stage, [id_], 10),
        *[process.sweep("expiry") for process in (stage.first, rival)],
        stage.cancel(id_, Reason.OPERATOR_CANCELLED, at=rival),
        *[process.sweep("owed") for process in (stage.first, rival)],
    )
    await stage.quiet()
    assert (await stage.orders([id_]))[id_].status is Status.CANCELLED
    ledger, slot = await stage.ledger(), await stage.slot()
    assert (ledger.sql.available, slot.available, slot.held, slot.buyers_units) == (1, 1, 0, 0)
    # The allowance is back too, and the unit is one unit.
    last = await stage.process()
    assert (await stage.reserve("buyer-0", "again", at=last)).code == "queued"
    assert (await stage.reserve("cecilia", at=last)).code == "sold_out"
    await stage.quiet()
