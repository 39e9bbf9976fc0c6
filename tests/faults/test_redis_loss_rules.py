"""One rule of the protocol a story, each with the Redis loss without which a sweep would hide that it is broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.domain.batch import BatchMessage
from service.domain.errors import OutcomeUnknown, StoreUnavailable
from service.domain.sale import Authority, Sale
from tests.fixtures.seams import After, Before, Once, Pause, away, reply_lost
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Process, Stage, counted, until
from tests.fixtures.told import Heard

pytestmark = [pytest.mark.server, pytest.mark.faults]


# --- who lost, and heard so -------------------------------------------------------------------------------------------


async def test_a_loser_who_heard_409_stays_one_though_sql_could_serve_him_after_the_loss(stage: Stage) -> None:
    """The decision row names him, and the older message's transaction skips him."""
    process = await stage.process("keeper", lanes=1)
    sale = await stage.sale(rules(stock=2))
    first = await stage.reserve("first")
    anna, bert = await _in_one_batch(stage, process, ("anna", 1), ("bert", 1))
    assert (anna.code, bert.code) == ("queued", "sold_out")
    await stage.cancel(first.reservation_id)
    await _lose(stage, sale.epoch)
    process.start("order")
    await stage.quiet()
    assert (await stage.get(anna.reservation_id)).code == "awaiting_payment"
    assert await stage.orders([bert.reservation_id]) == {}


async def test_a_loser_whose_epoch_ended_before_his_decision_was_recorded_hears_503(stage: Stage) -> None:
    """He may yet win as an older candidate, and here he does. His process has not seen the change of epoch."""
    await stage.process("keeper")
    api = await stage.process(lanes=1)
    sale = await stage.sale(rules(stock=2))
    first = await stage.reserve("first")

    async def lose_redis() -> None:
        await stage.cancel(first.reservation_id)
        await api.kill("view")
        await asyncio.to_thread(stage.server.call, "FLUSHALL")
        await until(lambda: _left_redis(stage), "the loss is seen")

    anna, bert = await _in_one_batch(stage, api, ("anna", 1), ("bert", 1), after=Once(lose_redis).then)
    assert (anna.code, bert.code) == ("queued", "outcome_unknown")
    api.start("view", "order")
    await stage.at_home(after_epoch=sale.epoch)
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await stage.becomes(bert.reservation_id, "awaiting_payment")
    await stage.quiet()


async def test_who_misused_a_key_in_a_batch_is_no_candidate_of_it_after_a_loss(stage: Stage) -> None:
    """He heard 422, and the key's first body was told `queued`: the other body never becomes the order."""
    process = await stage.process("keeper", lanes=1)
    rival = await stage.process()
    await stage.sale(rules(stock=10, limit=3))
    await stage.reserve("first")
    told: list[Heard] = []

    async def reserve_first() -> None:
        told.append(await stage.reserve("anna", at=rival))

    misused, bert = await _in_one_batch(stage, process, ("anna", 3), ("bert", 1), before=Once(reserve_first))
    assert (told[0].code, misused.code, bert.code) == ("queued", "idempotency_key_reused", "queued")
    (batch,) = [it for it in await stage.undelivered() if len(it.candidates) == 2]
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await until(lambda: _left_redis(stage), "the loss is seen")
    # Its message comes before that of the first body.
    await until(lambda: _decided(process, batch), "the batch is decided")
    await stage.becomes(bert.reservation_id, "awaiting_payment")
    process.start("order")
    await stage.becomes(told[0].reservation_id, "awaiting_payment")
    await stage.quiet()


# --- the order transaction --------------------------------------------------------------------------------------------


async def test_a_consumer_killed_before_its_commit_has_not_acked(stage: Stage) -> None:
    """It had the message and the records in its hands; Redis is lost, and nothing but the message knows."""
    await stage.process("keeper")
    victim = await stage.process()
    sale = await stage.sale()
    pause = Pause()
    victim.seam.after["batches"] = pause.then
    victim.start("order")
    anna = await stage.reserve("anna")
    await pause.arrived.wait()
    await victim.kill("order")
    await _lose(stage, sale.epoch)
    await stage.becomes(anna.reservation_id, "awaiting_payment", at=await stage.process("order"))
    await stage.quiet()


@pytest.mark.parametrize("rival", [True, False])
async def test_a_consumer_paused_through_a_loss_starts_over(stage: Stage, *, rival: bool) -> None:
    """What it read was true of an epoch that has ended: the locked row says so, and another one's order stands."""
    await stage.process("keeper")
    paused, other = await stage.process(), await stage.process()
    sale = await stage.sale(rules(stock=2))
    pause = Pause()
    paused.seam.after["batches"] = pause.then
    paused.start("order")
    anna = await stage.reserve("anna")
    await pause.arrived.wait()
    await _lose(stage, sale.epoch)
    if rival:
        other.start("order")
        await stage.becomes(anna.reservation_id, "awaiting_payment")
        await stage.cancel(anna.reservation_id)
    bert = await stage.reserve("bert")
    assert bert.code == "queued"
    pause.go.set()
    for it in (bert,) if rival else (anna, bert):
        await stage.becomes(it.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert (await stage.slot()).available == int(rival)


async def test_order_messages_wait_while_redis_is_loaded(stage: Stage) -> None:
    """Neither ordered by SQL behind the loader's back, nor acked: the load has not seen them."""
    keeper = await stage.process("keeper")
    process = await stage.process()
    await stage.sale(rules(stock=3))
    anna = await stage.reserve("anna")
    pause = Pause()
    keeper.seam.before["load_stock"] = pause
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await pause.arrived.wait()
    waiting = counted("dropgate_messages_total", group="dropgate-order-creator", outcome="retry")
    process.start("order")
    await until(lambda: _more_wait(waiting), "the message waits")
    assert await stage.orders([anna.reservation_id]) == {}
    assert (await stage.get(anna.reservation_id)).is_unknown
    assert (await stage.reserve("bert")).is_unknown
    pause.go.set()
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 2


# --- endings, releases, adjustments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_cancel_that_straddles_a_loss_starts_over(stage: Stage, *, ordered: bool) -> None:
    """Its look at Redis is of an older epoch. Meanwhile the message became an order, which is cancelled; or it has not
    come yet: then nobody is told `cancelled` of an id that the new Redis does not know, and a retry with its key
    wins."""
    process, canceller = await stage.process("keeper"), await stage.process()
    sale = await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna")

    async def lose_and_order() -> None:
        if ordered:
            process.start("order")
        await _lose(stage, sale.epoch)
        if ordered:
            await stage.becomes(anna.reservation_id, "awaiting_payment")

    canceller.seam.after["find"] = Once(lose_and_order).then
    canceller.seam.before["end"] = away
    cancelled = await stage.cancel(anna.reservation_id, at=canceller)
    assert cancelled.code == ("cancelled" if ordered else "outcome_unknown")
    assert (await stage.reserve("anna")).code == ("cancelled" if ordered else "queued")
    await stage.quiet()
    assert (await stage.slot()).available == int(ordered)


async def test_a_cancel_that_sql_did_not_take_leaves_redis_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL first: no unit is for sale again before its order has ended."""
    process = await stage.process("order", "keeper")
    await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")

    async def refuse(*_: Any) -> Any:
        raise StoreUnavailable("sql", "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(process.adapters.orders, "transact", refuse)
        assert (await stage.cancel(anna.reservation_id)).is_unknown
        assert (await stage.slot()).available == 0
    assert process.seam.calls["end"] == 0
    await stage.quiet()
    assert (await stage.get(anna.reservation_id)).code == "awaiting_payment"


async def test_a_release_owed_in_an_epoch_that_ended_is_not_given_again(stage: Stage) -> None:
    """The load has the unit already; the keeper, which read what was owed before it, applies it to nothing."""
    process, sweeper = await stage.process("order", "keeper"), await stage.process()
    sale = await stage.sale(rules(stock=2))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await until(lambda: _is_quiet(stage), "the order is confirmed")
    process.seam.before["end"] = away
    await stage.cancel(anna.reservation_id)
    pause = Pause()
    sweeper.seam.before["end"] = pause
    sweeping = asyncio.create_task(sweeper.sweep("owed"))
    await pause.arrived.wait()
    await _lose(stage, sale.epoch)
    process.seam.heal()
    assert (await stage.reserve("anna", "again")).code == "queued"
    pause.go.set()
    await sweeping
    await stage.quiet()
    assert (await stage.slot()).available == 1


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("delta", [3, -3])
async def test_an_adjustment_cut_off_half_way_counts_once(stage: Stage, delta: int, *, lost: bool) -> None:
    """Up: SQL has it, Redis was away. Down: Redis did it, its reply was lost. The same id again finishes it."""
    process = await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=10))
    if delta > 0:
        process.seam.before["adjust"] = away
    else:
        process.seam.after["adjust"] = reply_lost
    with pytest.raises(OutcomeUnknown):
        await process.cases.sales.adjust(SALE, "one", delta, ACTOR)
    assert (await stage.row()).available == 10 + max(delta, 0)
    assert (await stage.slot()).available == 10 + min(delta, 0)
    process.seam.heal()
    if lost:
        await _lose(stage, sale.epoch)
    await process.cases.sales.adjust(SALE, "one", delta, ACTOR)
    await stage.quiet()
    assert ((await stage.row()).available, (await stage.slot()).available) == (10 + delta, 10 + delta)


# ----------------------------------------------------------------------------------------------------------------------


async def _in_one_batch(
    stage: Stage, process: Process, *asks: tuple[str, int], before: Before | None = None, after: After | None = None
) -> list[Heard]:
    """They ask while the one lane is busy with somebody's retry, and so share the next batch; hooks around its
    reserve."""
    pause = Pause()
    process.seam.before["peek"] = pause
    retry = asyncio.create_task(stage.reserve("first", at=process))
    await pause.arrived.wait()
    asking = [asyncio.create_task(stage.reserve(buyer, quantity=units, at=process)) for buyer, units in asks]
    await asyncio.sleep(0)
    process.seam.heal()
    if before is not None:
        process.seam.before["reserve"] = before
    if after is not None:
        process.seam.after["reserve"] = after
    pause.go.set()
    assert (await retry).replayed
    return await asyncio.gather(*asking)


async def _decided(process: Process, batch: BatchMessage) -> bool:
    return batch.batch_id in (await process.cases.intake.decide([batch])).ended()


async def _lose(stage: Stage, epoch: int) -> Sale:
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    return await stage.at_home(after_epoch=epoch)


async def _left_redis(stage: Stage) -> bool:
    return (await stage.row()).authority is not Authority.REDIS


async def _more_wait(than: float) -> bool:
    return counted("dropgate_messages_total", group="dropgate-order-creator", outcome="retry") > than


async def _is_quiet(stage: Stage) -> bool:
    return (await stage.ledger()).quiet
