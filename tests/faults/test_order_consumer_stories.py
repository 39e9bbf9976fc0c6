"""The consumers under slow stores and odd clocks: what may wait does not hold up what must not (failures F18, F21)."""

from __future__ import annotations

import time

import pytest

from service.adapters.embedded.producer import EmbeddedPublisher
from service.core import after_commit
from service.core.expiry import EARLY_MAX_S, PaymentExpiry
from service.domain.batch import SCHEMA, BatchMessage, PaymentTimeoutMessage, decode_payment_timeout, encode
from service.ports.messaging import Delivery, Done, Outcome, OutgoingMessage, RetryAfter
from tests.fixtures.seams import away, slow
from tests.fixtures.sql import rules
from tests.fixtures.stage import SALE, Process, Stage

pytestmark = [pytest.mark.server, pytest.mark.faults]

BATCHES = 12


async def _many_batches(stage: Stage, process: Process) -> list[BatchMessage]:
    for number in range(BATCHES):
        assert (await stage.reserve(f"b-{number}")).code == "queued"
    batches = await stage.undelivered()
    assert len(batches) == BATCHES
    return batches


@pytest.mark.parametrize("call", ["confirm", "publish"])
async def test_the_ack_does_not_wait_for_what_is_best_effort(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(after_commit, "AFTER_COMMIT_S", 0.5)
    process = await stage.process("keeper")
    await stage.sale(rules(stock=BATCHES))
    batches = await _many_batches(stage, process)
    with monkeypatch.context() as patch:
        if call == "confirm":
            process.seam.before["confirm"] = slow(60)
        else:
            patch.setattr(EmbeddedPublisher, "publish", slow(60))
        began_s = time.monotonic()
        outcomes = await process.cases.intake.process([_delivery(stage, it.batch_id, encode(it)) for it in batches])
        assert time.monotonic() - began_s < 3
    assert {type(outcome) for _, outcome in outcomes} == {Done}
    process.seam.heal()
    await stage.quiet()


@pytest.mark.parametrize("redis_is_away", [True, False])
async def test_a_transaction_of_many_batches_tells_redis_and_the_broker_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, redis_is_away: bool
) -> None:
    """And where Redis is away, that costs one call, and the delay messages go all the same."""
    published: list[list[OutgoingMessage]] = []
    publish = EmbeddedPublisher.publish

    async def counting(self: EmbeddedPublisher, messages: list[OutgoingMessage]) -> None:
        published.append(messages)
        await publish(self, messages)

    process = await stage.process("keeper")
    await stage.sale(rules(stock=BATCHES))
    await process.stop("keeper")
    batches = await _many_batches(stage, process)
    monkeypatch.setattr(EmbeddedPublisher, "publish", counting)
    if redis_is_away:
        process.seam.before["confirm"] = away
    await process.cases.intake.decide(batches)
    assert process.seam.calls["confirm"] == 1
    ((message,),) = published
    assert len(decode_payment_timeout(message.body).reservation_ids) == BATCHES
    assert (await stage.slot()).queued == (BATCHES if redis_is_away else 0)
    process.seam.heal()
    await stage.quiet()


async def test_an_early_time_out_waits_at_its_consumer_and_is_not_sent_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose clock is ahead delivers at once whatever time a message names: only a pause holds it back."""
    process = await stage.process("keeper", "order")
    await stage.sale()
    anna = await stage.reserve("anna")
    order = await stage.becomes(anna.reservation_id, "awaiting_payment")
    assert order.reservation is not None
    assert order.reservation.expires_at_ms is not None
    expiry = PaymentExpiry(process.adapters.orders, process.cases.endings, stage.clock)
    body = encode(
        PaymentTimeoutMessage(
            schema=SCHEMA,
            sale_id=SALE,
            reservation_ids=(anna.reservation_id,),
            expires_at_ms=order.reservation.expires_at_ms,
        )
    )

    await process.stop("order")
    sent: list[object] = []

    async def note(*messages: object) -> None:
        sent.append(messages)

    monkeypatch.setattr(EmbeddedPublisher, "publish", note)

    async def delay_s() -> float:
        outcome = await _process(expiry, _delivery(stage, "m", body))
        assert isinstance(outcome, RetryAfter), outcome
        return outcome.delay_s

    assert await delay_s() == EARLY_MAX_S
    await stage.jump(900 - 100)
    assert 90 < await delay_s() <= 100
    left_ms = order.reservation.expires_at_ms - stage.clock.now_ms()
    await stage.jump((left_ms - 300) / 1000)
    assert await delay_s() == 1.0, "never at once"
    assert sent == []
    await stage.jump(1)
    assert isinstance(await _process(expiry, _delivery(stage, "m", body)), Done)
    assert (await stage.get(anna.reservation_id)).code == "cancelled"


async def _process(expiry: PaymentExpiry, delivery: Delivery) -> Outcome:
    ((_, outcome),) = await expiry.process([delivery])
    return outcome


def _delivery(stage: Stage, key: str, body: bytes) -> Delivery:
    return Delivery(
        topic="t", message_id=key, key=key, body=body, attempt=1, born_at_ms=stage.clock.now_ms(), receipt=None
    )
