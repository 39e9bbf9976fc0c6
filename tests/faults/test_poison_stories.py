"""Messages that cannot be decided, now or ever: none is acked unheard, none spins, and each has an end (F10, F26)."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import msgspec
import pytest

from service.adapters.sql.sale_transaction import SqlSaleTransaction
from service.core import order_intake
from service.core.fates import PATIENCE_MS
from service.domain.batch import SCHEMA, BatchMessage, Candidate, encode
from service.domain.check_back import Verdict
from service.domain.errors import RowRefused
from service.domain.ids import BuyerId, ReservationId, SaleId, new_batch_id, reservation_id
from service.domain.sale import Authority
from service.ports.messaging import CheckRequest, Dead, Delivery, Done, Outcome, RetryAfter
from service.ports.orders import LEADER_LEASE
from tests.fixtures.sql import rules
from tests.fixtures.stage import SALE, Process, Stage, counted

pytestmark = [pytest.mark.server, pytest.mark.faults]

NO_RECORD = "dropgate_messages_without_record_total"


async def test_a_batch_of_a_segment_that_the_epoch_has_not_is_no_loss(stage: Stage) -> None:
    """Its message is acked without an order and its half message rolled back; the sale sells on in the same epoch."""
    process = await stage.process("keeper")
    sale = await stage.sale(rules(stock=5))
    foreign = _batch(sale.epoch, segment=7)
    no_record = counted(NO_RECORD)
    assert isinstance(await _outcome(process, _delivery(stage, foreign)), Done)
    assert counted(NO_RECORD) - no_record == 1
    assert await process.cases.checks.answer(_request(foreign)) is Verdict.ROLLBACK
    row = await stage.row()
    assert (row.epoch, row.lost) == (sale.epoch, None)
    assert (await stage.reserve("anna")).code == "queued"
    await stage.quiet()


@pytest.mark.parametrize(("sale_id", "later_epochs"), [(SaleId("gone"), 0), (SALE, 5)])
async def test_a_batch_that_no_row_explains_is_tried_ever_more_rarely_and_dead_after_a_day(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, sale_id: SaleId, later_epochs: int
) -> None:
    """Of a sale that is not there, or of an epoch that its row has not reached."""
    monkeypatch.setattr(order_intake, "WAIT_S", 1.0)
    process = await stage.process("keeper")
    sale = await stage.sale(rules(stock=5))
    batch = _batch(sale.epoch + later_epochs, sale_id=sale_id)
    delays = [await _outcome(process, _delivery(stage, batch, attempt=number)) for number in (1, 2, 3, 6, 60)]
    assert [it.delay_s for it in delays if isinstance(it, RetryAfter)] == [1, 2, 4, 30, 30]
    patience_s = PATIENCE_MS / 1000 + (0 if later_epochs == 0 else sale.rules.queue_deadline_s)
    assert isinstance(await _outcome(process, _delivery(stage, batch, age_s=patience_s - 1)), RetryAfter)
    assert isinstance(await _outcome(process, _delivery(stage, batch, age_s=patience_s + 1)), Dead)
    assert isinstance(await _outcome(process, _delivery(stage, _batch(sale.epoch))), Done), "others are not"
    await stage.quiet()


@pytest.mark.parametrize("authority", [Authority.SQL, Authority.REDIS])
async def test_an_older_candidate_that_sql_refuses_is_rejected_past_its_deadline(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    """I5: whoever decides by then. Until then it is tried; a neighbour in its batch gets an order meanwhile."""
    process, old = await _after_a_loss(stage, authority)
    poison, good = (_id(buyer) for buyer in ("poison", "good"))
    _refuse_rows(monkeypatch, poison, also_final=False)
    assert isinstance(await _outcome(process, _delivery(stage, old)), RetryAfter)
    assert set(await stage.orders([poison, good])) == {good}
    await stage.jump(601)
    assert isinstance(await _outcome(process, _delivery(stage, old)), Done)
    row = (await stage.orders([poison]))[poison]
    assert (row.status, row.reason, row.metadata) == ("rejected", "not_confirmed", None)
    await stage.quiet()


async def test_a_candidate_that_sql_cannot_even_reject_is_dead_in_the_end_and_kills_no_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, old = await _after_a_loss(stage, Authority.SQL)
    poison, good = (_id(buyer) for buyer in ("poison", "good"))
    _refuse_rows(monkeypatch, poison, also_final=True)
    await stage.jump(601)
    assert isinstance(await _outcome(process, _delivery(stage, old)), RetryAfter)
    assert isinstance(await _outcome(process, _delivery(stage, old, age_s=PATIENCE_MS / 1000 + 601)), Dead)
    assert set(await stage.orders([poison, good])) == {good}
    assert (await process.sweep("undelivered")) == 0


async def test_a_message_of_a_newer_release_waits_for_it_and_a_malformed_one_is_dead(stage: Stage) -> None:
    process = await stage.process("keeper")
    sale = await stage.sale()
    newer = msgspec.json.encode({"schema": SCHEMA + 1, "orders": []})
    for age_s in (0, 7 * 86_400):
        delivery = changed(_delivery(stage, _batch(sale.epoch), age_s=age_s), body=newer)
        assert isinstance(await _outcome(process, delivery), RetryAfter)
    twice = msgspec.structs.replace(_batch(sale.epoch), candidates=_batch(1).candidates * 2)
    for body in (b"{}", b"not json", encode(twice)):
        delivery = changed(_delivery(stage, _batch(sale.epoch)), body=body)
        assert isinstance(await _outcome(process, delivery), Dead)
    assert await process.cases.checks.answer(changed(_request(twice), body=newer)) is Verdict.UNKNOWN
    await stage.quiet()


async def test_a_stored_batch_of_a_newer_release_is_left_to_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumer and sweep of the older release go on with the others; after the roll-out it gets its order."""
    process = await stage.process("keeper")
    await stage.sale(rules(stock=5))
    with monkeypatch.context() as patch:
        patch.setattr("service.adapters.redis.stock.encode", _as_a_newer_release)
        newer = await stage.reserve("newer")
    anna = await stage.reserve("anna")
    record = await stage.record(newer.reservation_id)
    assert record is not None
    batch = msgspec.structs.replace(_batch((await stage.row()).epoch, "newer"), batch_id=record.batch_id)
    unreadable = counted("dropgate_unreadable_batches_total")
    assert isinstance(await _outcome(process, _delivery(stage, batch)), RetryAfter)
    await stage.jump(60)
    process.start("order")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await process.sweep("undelivered")
    assert counted("dropgate_unreadable_batches_total") > unreadable + 1
    assert (await stage.get(newer.reservation_id)).code == "queued"
    assert process.runs("order")
    assert process.runs("keeper")
    monkeypatch.setattr("service.adapters.redis.replies.decode_batch", _by_the_newer_release)
    await stage.becomes(newer.reservation_id, "awaiting_payment")
    await stage.quiet()


async def test_a_check_back_is_answered_unknown_whatever_goes_wrong(stage: Stage) -> None:
    """A bug too: what a transport's callback raises may end its thread, and with it every later answer."""
    process = await stage.process("keeper")
    sale = await stage.sale()

    async def bug(*_: object) -> None:
        raise ZeroDivisionError

    process.seam.before["resolve"] = bug
    errors = counted("dropgate_check_backs_total", verdict="error")
    assert await process.cases.checks.answer(_request(_batch(sale.epoch))) is Verdict.UNKNOWN
    assert counted("dropgate_check_backs_total", verdict="error") - errors == 1
    process.seam.heal()
    await stage.quiet()


# ----------------------------------------------------------------------------------------------------------------------


def _id(buyer: str, sale_id: SaleId = SALE) -> ReservationId:
    return reservation_id(sale_id, BuyerId(buyer), "k")


def _batch(epoch: int, *buyers: str, sale_id: SaleId = SALE, segment: int = 0) -> BatchMessage:
    return BatchMessage(
        schema=SCHEMA,
        batch_id=new_batch_id(),
        sale_id=sale_id,
        segment=segment,
        epoch=epoch,
        created_at_ms=1,
        candidates=tuple(
            Candidate(
                reservation_id=_id(buyer, sale_id),
                buyer_id=BuyerId(buyer),
                quantity=1,
                fingerprint="f",
                metadata={"cart": "c-1"},
            )
            for buyer in buyers or ("late",)
        ),
    )


def _delivery(stage: Stage, batch: BatchMessage, *, attempt: int = 1, age_s: float = 0) -> Delivery:
    return Delivery(
        topic=stage.topics.order.name,
        message_id="m",
        key=batch.batch_id,
        body=encode(batch),
        attempt=attempt,
        born_at_ms=stage.clock.now_ms() - round(age_s * 1000),
        receipt=None,
    )


def _request(batch: BatchMessage) -> CheckRequest:
    return CheckRequest(topic="dropgate-order", message_id="m", key=batch.batch_id, body=encode(batch), check=1)


async def _outcome(process: Process, delivery: Delivery) -> Outcome:
    ((_, outcome),) = await process.cases.intake.process([delivery])
    return outcome


async def _after_a_loss(stage: Stage, authority: Authority) -> tuple[Process, BatchMessage]:
    """A batch of the epoch that ended, under the authority that decides on it now."""
    process = await stage.process("keeper")
    sale = await stage.sale(rules(stock=5))
    await process.stop("keeper")
    sales, now_ms = process.adapters.sales, stage.clock.now_ms()
    assert await sales.acquire_lease(LEADER_LEASE, "me", now_ms, 60_000)
    assert await sales.change_authority(
        SALE, leader="me", expected=(sale.authority, sale.epoch), to=Authority.SQL, now_ms=now_ms
    )
    await sales.release_lease(LEADER_LEASE, "me")
    if authority is Authority.REDIS:
        process.start("keeper")
        await stage.at_home(after_epoch=sale.epoch)
    await stage.see()
    return process, _batch(sale.epoch, "poison", "good")


def _refuse_rows(monkeypatch: pytest.MonkeyPatch, id_: str, *, also_final: bool) -> None:
    insert = SqlSaleTransaction.insert_orders

    async def refuse(self: SqlSaleTransaction, new: Any) -> None:
        if any(order.id == id_ and (also_final or order.metadata is not None) for order in new):
            raise RowRefused("a value that the column cannot hold")
        await insert(self, new)

    monkeypatch.setattr(SqlSaleTransaction, "insert_orders", refuse)


def _as_a_newer_release(batch: BatchMessage) -> bytes:
    return encode(msgspec.structs.replace(batch, schema=SCHEMA + 1))


def _by_the_newer_release(body: bytes) -> BatchMessage:
    return msgspec.json.decode(body, type=BatchMessage)
