"""Half messages that nobody ended: what the check-back answers, and what becomes of buyer and stock (failures F01-F14).

Where a sweep would repair what a rule prevents, a story about that rule has a Redis loss in it: test_redis_loss_*.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from service.domain.batch import SCHEMA, BatchMessage, Candidate, encode
from service.domain.check_back import Verdict
from service.domain.ids import BuyerId, new_batch_id, reservation_id
from service.domain.stock import Slot
from service.ports.messaging import CheckRequest
from tests.fixtures.seams import Pause, away, reply_lost, slow
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_BOTH_STACKS
from tests.fixtures.stage import SALE, Stage, counted, until

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.server,
    pytest.mark.faults,
    ON_BOTH_STACKS,
]

CHECKS = "dropgate_check_backs_total"
NO_RECORD = "dropgate_messages_without_record_total"


async def test_a_check_back_before_the_deduct_fences_it_and_the_same_key_wins_later(stage: Stage) -> None:
    """F01, F32: A is paused between half message and Lua; B answers ROLLBACK; A's late call changes nothing."""
    paused = await stage.process()
    await stage.process("order", "keeper")
    await stage.sale()
    id_ = reservation_id(SALE, BuyerId("anna"), "k")
    pause = Pause()
    paused.seam.before["reserve"] = pause
    async with stage.polled(id_):
        asking = asyncio.create_task(stage.reserve("anna", at=paused))
        await pause.arrived.wait()
        await until(lambda: _no_halves(stage), "the check-back was answered")
        paused.seam.heal()
        pause.go.set()
        heard = await asking
        assert (heard.code, heard.id) == ("outcome_unknown", id_)
        count = await stage.slot()
        assert (count.available, count.held, count.buyers_units) == (10, 0, 0)
        assert await stage.orders([id_]) == {}
        again = await stage.reserve("anna", at=paused)
        assert (again.code, again.id) == ("queued", id_)
        await stage.becomes(id_, "awaiting_payment")
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == 1


async def test_messages_that_hold_nothing_make_no_order(stage: Stage) -> None:
    """F02: fenced, never seen, released: acked and counted; a live one three times: one order."""
    process = await stage.process("keeper")
    sale = await stage.sale()
    slot = Slot(sale_id=SALE, segment=0, epoch=sale.epoch)
    fenced, unknown = _batch(sale.epoch, "fenced"), _batch(sale.epoch, "unknown")
    await process.adapters.stock.resolve(slot, fenced.batch_id)
    anna = await stage.reserve("anna")
    (released,) = await stage.undelivered()
    await stage.cancel(anna.reservation_id)
    live = await stage.reserve("live")
    (its_batch,) = await stage.undelivered()
    await stage.publish(fenced, unknown, released, its_batch, its_batch)
    group = stage.topics.order.group or ""
    no_record, retried = counted(NO_RECORD), counted("dropgate_messages_total", group=group, outcome="retry")
    process.start("order")
    await stage.becomes(live.reservation_id, "awaiting_payment")
    await stage.quiet()
    rejected = counted(NO_RECORD) - no_record
    assert rejected in {3, 4}, "fenced, unknown, and the released one's two copies, which may come together"
    assert counted("dropgate_messages_total", group=group, outcome="retry") == retried
    assert counted("dropgate_dead_letters_total", group=group) == 0
    assert len(await stage.orders([it.reservation_id for it in (*fenced.candidates, *unknown.candidates)])) == 0
    assert (await stage.ledger()).sql.awaiting_payment == 1


async def test_two_hundred_copies_of_one_message_are_one_order(stage: Stage) -> None:
    """F03: from 20 producers, with 200 message ids, to two consumers."""
    first, second = await stage.process("keeper"), await stage.process()
    await stage.sale()
    anna = await stage.reserve("anna")
    (batch,) = await stage.undelivered()

    async def produce() -> None:
        for _ in range(10):
            await stage.publish(batch)

    await asyncio.gather(*[produce() for _ in range(20)])
    first.start("order")
    second.start("order")
    bert = await stage.reserve("bert")
    await stage.becomes(bert.reservation_id, "awaiting_payment")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 8


async def test_a_second_check_back_agrees_with_the_first_and_a_late_commit_is_no_second_order(stage: Stage) -> None:
    """F14: checks for what is paid, cancelled and rolled back have no effect, twenty times over."""
    process = await stage.process("order", "keeper")
    sale = await stage.sale()
    await process.kill("order")
    paid, cancelled = await stage.reserve("anna"), await stage.reserve("bert")
    batches = {batch.candidates[0].reservation_id: batch for batch in await stage.undelivered()}
    process.start("order")
    for heard in (paid, cancelled):
        await stage.becomes(heard.reservation_id, "awaiting_payment")
    await stage.pay(paid.reservation_id)
    await stage.cancel(cancelled.reservation_id)
    rolled_back = _batch(sale.epoch, "carl")
    before = await stage.ledger()
    # An order that was cancelled commits: its message meets the row. What counts is that nothing follows.
    wanted = {
        batches[paid.reservation_id].batch_id: Verdict.COMMIT,
        batches[cancelled.reservation_id].batch_id: Verdict.COMMIT,
        rolled_back.batch_id: Verdict.ROLLBACK,
    }
    for batch in (*batches.values(), rolled_back):
        for number in range(20):
            assert await process.cases.checks.answer(_request(batch, number)) is wanted[batch.batch_id]
    await stage.publish(*batches.values(), rolled_back)
    await stage.quiet()
    assert (await stage.ledger()).sql == before.sql
    assert (await stage.get(cancelled.reservation_id)).code == "cancelled"


async def _flush(stage: Stage) -> None:
    await asyncio.to_thread(stage.server.call, "FLUSHALL")


async def _restart_empty(stage: Stage) -> None:
    await asyncio.to_thread(stage.server.kill)
    for path in (stage.server.folder / "appendonlydir").glob("*"):
        path.unlink()
    await asyncio.to_thread(stage.server.start)


async def _restart(stage: Stage) -> None:
    await asyncio.to_thread(stage.server.restart)


async def _away_for_a_while(stage: Stage) -> None:
    unknown = counted(CHECKS, verdict="error")
    await asyncio.to_thread(stage.server.kill)
    await until(lambda: _counted_more(CHECKS, unknown, verdict="error"), "a check-back was asked in vain")
    await asyncio.to_thread(stage.server.start)


@pytest.mark.parametrize("fault", [_flush, _restart_empty, _restart, _away_for_a_while])
async def test_a_checker_that_cannot_see_the_truth_never_rolls_back(
    stage: Stage, fault: Callable[[Stage], Awaitable[None]]
) -> None:
    """F09: the deduct's reply is lost, then Redis: the half message is in doubt, and ends in exactly one order."""
    process = await stage.process("order", "keeper")
    await stage.process()
    sale = await stage.sale()
    process.seam.after["reserve"] = reply_lost
    rolled_back = counted(CHECKS, verdict="rollback")
    heard = await stage.reserve("anna")
    assert heard.code == "outcome_unknown"
    process.seam.heal()
    async with stage.polled(heard.reservation_id, every_s=0.02):
        await fault(stage)
        await stage.becomes(heard.reservation_id, "awaiting_payment")
    assert counted(CHECKS, verdict="rollback") == rolled_back
    await stage.at_home(after_epoch=sale.epoch)
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == 1


async def test_a_hundred_in_doubt_behind_a_slow_redis_all_end_and_one_bad_one_hides_none(stage: Stage) -> None:
    """F10: every check meets a Redis that does not answer; an unreadable half message stays UNKNOWN to the end."""
    process = await stage.process("keeper")
    await stage.sale(rules(stock=100))
    process.seam.after["reserve"] = reply_lost
    heard = await asyncio.gather(*[stage.reserve(f"buyer-{number}") for number in range(100)])
    assert {it.code for it in heard} == {"outcome_unknown"}
    process.seam.heal()
    errors = counted(CHECKS, verdict="error")
    process.seam.before.update(resolve=slow(10), batches=away, undelivered=away)
    await process.deliver([b"not a batch", b'{"schema": 99}'], Verdict.UNKNOWN)
    process.start("order")
    await until(lambda: _counted_more(CHECKS, errors + 1, verdict="error"), "the unreadable ones were asked about")
    process.seam.heal()
    for it in heard:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    await stage.quiet(halves_left=2)
    assert (await stage.backlog()).halves == 2
    assert (await stage.ledger()).sql.available == 0


# ----------------------------------------------------------------------------------------------------------------------


def _batch(epoch: int, *buyers: str) -> BatchMessage:
    candidates = [
        Candidate(
            reservation_id=reservation_id(SALE, BuyerId(buyer), "k"),
            buyer_id=BuyerId(buyer),
            quantity=1,
            fingerprint="f",
        )
        for buyer in buyers
    ]
    return BatchMessage(
        schema=SCHEMA,
        batch_id=new_batch_id(),
        sale_id=SALE,
        segment=0,
        epoch=epoch,
        created_at_ms=1,
        candidates=tuple(candidates),
    )


def _request(batch: BatchMessage, number: int) -> CheckRequest:
    return CheckRequest(topic="dropgate-order", message_id="m", key=batch.batch_id, body=encode(batch), check=number)


async def _no_halves(stage: Stage) -> bool:
    return (await stage.backlog()).halves == 0


async def _counted_more(name: str, than: float, **labels: str) -> bool:
    return counted(name, **labels) > than
