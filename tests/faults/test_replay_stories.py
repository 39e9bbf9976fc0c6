"""Check-back replay: an operator finds what got stuck, and has it brought to its end, once (F04, F14, F54)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from service.core import in_doubt, one_look, stranded
from service.domain.errors import (
    BrokerRefused,
    DropgateError,
    InvalidRequest,
    NotFound,
    RowRefused,
    StockUnavailable,
    StoreUnavailable,
)
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId, reservation_id
from service.domain.replay import CLAIM_MS, Item, Outcome, Replay, ReplayId, Scope, Source
from service.domain.stock import Batches
from tests.fixtures.replays import ONE_CHECK, Desk, everything, with_a_discarded_half
from tests.fixtures.seams import Once, Pause, away
from tests.fixtures.stage import SALE, Stage, counted, until

pytestmark = [pytest.mark.server, pytest.mark.faults]

IN_DOUBT, DISCARDED, DEAD_LETTER = (Scope(source=source) for source in Source)
OTHER = SaleId("sneaker-02")
DISCARDED_HALVES = "dropgate_discarded_halves"


@pytest.fixture
async def desk(stage: Stage) -> Desk:
    """An operator at a process that runs nothing. One open sale; nobody consumes, sweeps or leads."""
    stage.settings = stage.settings.model_copy(update=ONE_CHECK)
    process = await stage.process("keeper")
    await stage.sale()
    await process.kill("keeper")
    return Desk(stage, process)


# --- the dry run ------------------------------------------------------------------------------------------------------


async def test_a_dry_run_says_what_is_there_what_would_be_done_and_why_and_changes_nothing(desk: Desk) -> None:
    discarded = await with_a_discarded_half(desk.stage, desk.process)
    anna = await desk.queued("anna")
    letter = await desk.buried("bert")
    await desk.process.deliver([b"not a batch"])
    await desk.bury()
    before = everything(desk.stage)
    looks = [await desk.look(scope) for scope in (IN_DOUBT, DISCARDED, DEAD_LETTER)]
    named = [
        await desk.look(replace(IN_DOUBT, reservation_ids=(anna, _id("nobody")))),
        await desk.look(replace(IN_DOUBT, batch_ids=(BatchId("nobody"),), sale_id=SALE)),
    ]
    assert everything(desk.stage) == before
    assert all(look.id is None and look.finished_at_ms is None for look in (*looks, *named))
    stuck, half, letters = looks
    assert Counter(item.outcome for item in stuck.items) == {Outcome.PLANNED: 3}
    assert {item.reservations[0].reservation_id for item in stuck.items} == {anna, discarded, letter}
    (item,) = half.items
    assert (item.outcome, item.sale_id, item.reservations[0].standing) == (Outcome.PLANNED, SALE, "queued")
    assert "The broker is to ask" in item.why
    assert [(it.outcome, it.batch_id is None) for it in letters.items] == [
        *[(Outcome.PLANNED, False)] * 2,
        (Outcome.REFUSED, True),
    ]
    await desk.undo_poison()
    await desk.stage.quiet()


async def test_a_dry_run_reports_no_loss_and_fences_nothing(desk: Desk) -> None:
    anna = await desk.queued("anna")
    before = await desk.stage.row()
    await asyncio.to_thread(desk.stage.server.call, "FLUSHALL")
    for scope in (IN_DOUBT, replace(IN_DOUBT, reservation_ids=(anna,))):
        (item,) = (await desk.look(scope)).items
        assert item.outcome is Outcome.WAITING
    assert await asyncio.to_thread(desk.stage.server.call, "DBSIZE") == 0
    assert await desk.stage.row() == before
    await desk.stage.quiet()


# --- in doubt ---------------------------------------------------------------------------------------------------------


async def test_a_batch_without_orders_is_replayed_into_them_once_however_often(desk: Desk) -> None:
    """Twice, five at once, and its own message afterwards."""
    ids = [await desk.queued(buyer) for buyer in ("anna", "bert")]
    done = await desk.act(IN_DOUBT)
    assert [item.outcome for item in done.items] == [Outcome.ORDERED] * 2
    assert done.finished_at_ms is not None
    assert {now.standing for item in done.items for now in item.reservations} == {"awaiting_payment"}
    carl = await desk.queued("carl")
    at_once = await asyncio.gather(*[desk.act(IN_DOUBT) for _ in range(5)])
    assert {item.outcome for it in at_once for item in it.items} == {Outcome.ORDERED}
    assert (await desk.act(IN_DOUBT)).items == ()
    again = await desk.act(replace(IN_DOUBT, reservation_ids=(*ids, carl)))
    assert [item.outcome for item in again.items] == [Outcome.NO_OP] * 3
    desk.process.start("order")
    await desk.stage.quiet()
    assert (await desk.stage.ledger()).sql.awaiting_payment == 3


async def test_each_act_has_its_row_in_the_audit_before_it_and_what_is_left_alone_has_none(desk: Desk) -> None:
    anna = await desk.queued("anna")
    (batch,) = await desk.stage.undelivered()
    audits = desk.audits()
    seen: list[int] = []

    async def count() -> None:
        seen.append(len(desk.audits()))

    desk.process.seam.before["confirm"] = Once(count)
    done = await desk.act(replace(IN_DOUBT, reservation_ids=(anna, _id("nobody"))), why="the consumer was down")
    (row,) = desk.audits()[len(audits) :]
    assert seen == [len(audits) + 1]
    assert (row["actor"], row["act"], row["subject"]) == ("olga", "replay", batch.batch_id)
    assert row["why"] == "the consumer was down"
    assert json.loads(row["detail"])["replay"] == done.id
    await desk.stage.quiet()


async def test_a_batch_is_found_by_its_reservation_by_its_id_and_by_its_age(desk: Desk) -> None:
    anna = await desk.queued("anna")
    (batch,) = await desk.stage.undelivered()
    by_id = replace(IN_DOUBT, sale_id=SALE, batch_ids=(batch.batch_id,))
    both = replace(by_id, reservation_ids=(anna,))
    for scope in (replace(IN_DOUBT, reservation_ids=(anna,)), by_id, both, replace(IN_DOUBT, sale_id=SALE)):
        (item,) = (await desk.look(scope)).items
        assert (item.outcome, item.batch_id) == (Outcome.PLANNED, batch.batch_id)
    old = replace(IN_DOUBT, older_than_s=60)
    assert (await desk.look(old)).items == ()
    (item,) = (await desk.look(replace(old, reservation_ids=(anna,)))).items
    assert (item.outcome, "younger" in item.why) == (Outcome.WAITING, True)
    await desk.stage.jump(61)
    for scope in (old, replace(old, reservation_ids=(anna,))):
        assert [it.outcome for it in (await desk.act(scope)).items] in ([Outcome.ORDERED], [Outcome.NO_OP])
    await desk.stage.quiet()


async def test_a_scope_that_cannot_be_looked_up_says_what_to_add(desk: Desk) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await desk.act(replace(IN_DOUBT, batch_ids=(BatchId("b"),)))
    assert caught.value.field == "scope.sale"
    for source in Source:
        with pytest.raises(NotFound):
            await desk.look(Scope(source=source, sale_id=OTHER))
    with pytest.raises(NotFound):
        await desk.process.cases.replays.get(ReplayId("rp-nobody"))


@pytest.mark.parametrize("source", list(Source))
async def test_unknown_foreign_and_malformed_ids_are_refused_one_by_one_and_the_rest_is_done(
    desk: Desk, source: Source
) -> None:
    anna, foreign, malformed = await desk.queued("anna"), _id("anna", OTHER), ReservationId("no id at all")
    ids = (foreign, malformed, _id("nobody"), anna)
    scope = Scope(source=source, sale_id=SALE, reservation_ids=ids, batch_ids=(BatchId("nobody"), BatchId("no/batch")))
    done = await desk.act(scope)
    outcomes = {_name(item): item.outcome for item in done.items}
    refused = dict.fromkeys((foreign, malformed, _id("nobody"), "nobody", "no/batch"), Outcome.REFUSED)
    here = await desk.status(anna)
    if source is Source.IN_DOUBT:
        assert here == "awaiting_payment"
        assert {name: it for name, it in outcomes.items() if it is not Outcome.ORDERED} == refused
    else:
        assert here is None
        assert outcomes == refused | {anna: Outcome.REFUSED}
    await desk.stage.quiet()


async def test_final_ones_stay_as_they_are_though_replayed_twenty_times(desk: Desk) -> None:
    """F14: paid, cancelled and given back, rolled back. Named, by their batches, and as dead letters of their own."""
    paid, cancelled, rejected = [await desk.queued(buyer) for buyer in ("anna", "bert", "carl")]
    batches = {it.candidates[0].reservation_id: it for it in await desk.stage.undelivered()}
    await desk.act(IN_DOUBT)
    await desk.stage.pay(paid)
    await desk.stage.cancel(cancelled)
    await desk.stage.cancel(rejected)
    rolled_back = await desk.rolled_back("dora")
    await desk.bury(rolled_back)
    before = await desk.stage.ledger()
    named = replace(
        IN_DOUBT,
        sale_id=SALE,
        reservation_ids=(paid, cancelled, rejected, rolled_back.candidates[0].reservation_id),
        batch_ids=(*(it.batch_id for it in batches.values()), rolled_back.batch_id),
    )
    wanted = {paid: Outcome.NO_OP, cancelled: Outcome.NO_OP, rejected: Outcome.NO_OP}
    for _ in range(20):
        found = {_name(item): item.outcome for item in (await desk.act(named)).items}
        assert found.pop(rolled_back.candidates[0].reservation_id) is Outcome.REFUSED
        assert found.pop(rolled_back.batch_id) is Outcome.REFUSED
        assert found == wanted | {it.batch_id: Outcome.NO_OP for it in batches.values()}
    letters = (await desk.act(DEAD_LETTER)).items
    assert Counter(item.outcome for item in letters) == {Outcome.NO_OP: 3, Outcome.RELEASED: 1}
    assert [(await desk.act(DEAD_LETTER)).items for _ in range(20)] == [()] * 20
    assert (await desk.stage.ledger()).sql == before.sql
    assert (await desk.stage.get(cancelled)).code == "cancelled"
    await desk.stage.quiet()


async def test_the_consumer_may_be_done_with_it_between_the_look_and_the_act(desk: Desk) -> None:
    anna = await desk.queued("anna")
    rival = await desk.stage.process()

    async def complete() -> None:
        rival.start("order")
        await desk.stage.becomes(anna, "awaiting_payment")

    desk.process.seam.after["undelivered"] = Once(complete).then
    (item,) = (await desk.act(IN_DOUBT)).items
    assert item.outcome in {Outcome.ORDERED, Outcome.NO_OP}
    await desk.stage.quiet()
    assert (await desk.stage.ledger()).sql.awaiting_payment == 1


async def test_replays_keeper_and_consumers_at_once_make_one_order_of_each(desk: Desk) -> None:
    ids = [await desk.queued(f"buyer-{number}") for number in range(8)]
    rival = await desk.stage.process("keeper")
    async with desk.stage.polled(*ids, every_s=0.02):
        desk.process.start("order")
        rival.start("order")
        await asyncio.gather(*[desk.act(IN_DOUBT) for _ in range(3)], *[rival.sweep("undelivered") for _ in range(3)])
        for id_ in ids:
            await desk.stage.becomes(id_, "awaiting_payment")
    await desk.stage.quiet()
    assert (await desk.stage.ledger()).sql.available == 2


async def test_a_loss_of_redis_between_the_look_and_the_act_makes_it_wait_and_nothing_twice(desk: Desk) -> None:
    anna = await desk.queued("anna")
    sale = await desk.stage.row()

    async def lose() -> None:
        await asyncio.to_thread(desk.stage.server.call, "FLUSHALL")
        desk.process.start("keeper")
        await desk.stage.at_home(after_epoch=sale.epoch)

    desk.process.seam.after["undelivered"] = Once(lose).then
    (item,) = (await desk.act(IN_DOUBT)).items
    assert item.outcome in {Outcome.WAITING, Outcome.ORDERED}
    desk.process.start("order")
    await desk.stage.becomes(anna, "awaiting_payment")
    await desk.stage.quiet()


@pytest.mark.parametrize("stays", ["sql", "loading"])
async def test_a_sale_that_redis_does_not_decide_is_no_empty_list(desk: Desk, stays: str) -> None:
    """What its buyers were told is in messages only, until they are delivered."""
    anna = await desk.queued("anna")
    leadership = desk.process.cases.leadership()
    await asyncio.to_thread(desk.stage.server.call, "FLUSHALL")
    desk.process.seam.before["stamp"] = away

    async def is_there() -> bool:
        await desk.stage.jump(11)
        assert await leadership.hold()
        with suppress(StockUnavailable):
            await desk.process.sweep("authority")
        return (await desk.stage.row()).authority == stays

    await until(is_there, f"it stays under {stays}")
    (item,) = (await desk.look(replace(IN_DOUBT, sale_id=SALE))).items
    assert (item.outcome, item.sale_id, f"under {stays}" in item.why) == (Outcome.WAITING, SALE, True)
    desk.process.seam.heal()
    desk.process.start("keeper")
    desk.process.start("order")
    await until(lambda: desk.row(anna), "its row is there")
    await desk.stage.quiet()


async def test_a_store_that_is_away_hides_none_of_the_others(desk: Desk) -> None:
    await desk.queued("anna")
    desk.process.seam.before.update(undelivered=away, batches=away, find=away)
    (item,) = (await desk.act(IN_DOUBT)).items
    assert (item.outcome, item.sale_id) == (Outcome.WAITING, SALE)
    desk.process.seam.heal()
    assert [it.outcome for it in (await desk.act(IN_DOUBT)).items] == [Outcome.ORDERED]
    await desk.stage.quiet()


async def test_an_act_whose_commit_nobody_heard_of_is_pending_and_its_rows_say_how_it_ended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not `waiting`, which would say for ever that nothing was done."""
    await desk.queued("anna")
    orders = desk.process.adapters.orders
    transact = orders.transact

    async def reply_is_lost(*args: Any, **kwargs: Any) -> None:
        await transact(*args, **kwargs)
        raise StoreUnavailable("sql", "no answer")

    monkeypatch.setattr(orders, "transact", reply_is_lost)
    done = await desk.act(IN_DOUBT)
    monkeypatch.undo()
    assert [item.outcome for item in done.items] == [Outcome.PENDING]
    assert (await desk.again(done)).outcome is Outcome.ORDERED
    await desk.act(IN_DOUBT)
    await desk.stage.quiet()


async def test_an_act_that_cannot_be_looked_at_afterwards_is_pending(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.buried("anna")

    async def no_answer(*_: Any) -> None:
        raise StoreUnavailable("sql", "no answer")

    async def reads_time_out() -> None:
        monkeypatch.setattr(desk.process.adapters.orders, "orders", no_answer)

    desk.process.seam.before["confirm"] = Once(reads_time_out)
    done = await desk.act(DEAD_LETTER)
    monkeypatch.undo()
    assert [item.outcome for item in done.items] == [Outcome.PENDING]
    assert (await desk.again(done)).outcome is Outcome.ORDERED
    assert [item.outcome for item in (await desk.act(DEAD_LETTER)).items] == [Outcome.NO_OP]
    await desk.stage.quiet()


async def test_a_replay_takes_no_more_than_its_measure_says_so_and_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_doubt, "BATCHES_MAX", 2)
    for buyer in ("anna", "bert", "carl", "dora", "emil"):
        await desk.queued(buyer)
    took = []
    for _ in range(3):
        done = await desk.act(IN_DOUBT)
        took.append((len(done.items), done.more))
    assert took == [(2, True), (2, True), (1, False)]
    await desk.stage.quiet()


async def test_batches_that_cannot_be_read_hide_none_behind_them(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer release stored the five oldest."""
    monkeypatch.setattr(in_doubt, "BATCHES_MAX", 2)
    for number in range(5):
        await desk.queued(f"newer-{number}")
    newer = frozenset(batch.batch_id for batch in await desk.stage.undelivered())
    anna = await desk.queued("anna")

    async def of_a_newer_release(reply: Batches) -> Batches:
        readable = {id_: stored for id_, stored in reply.found.items() if id_ not in newer}
        return Batches(found=readable, unreadable=newer.intersection(reply.found))

    desk.process.seam.after["undelivered"] = of_a_newer_release
    done = await desk.act(IN_DOUBT)
    assert [item.outcome for item in done.items] == [Outcome.ORDERED, Outcome.WAITING]
    assert (done.items[0].reservations[0].reservation_id, done.more) == (anna, True)
    desk.process.seam.heal()
    monkeypatch.undo()
    await desk.act(IN_DOUBT)
    await desk.stage.quiet()


async def test_a_slot_that_does_not_answer_is_asked_once_for_all_messages(desk: Desk) -> None:
    for buyer in ("anna", "bert", "carl"):
        await desk.buried(buyer)
    seam = desk.process.seam
    seam.before["find"] = away
    asked = seam.calls["find"]
    assert [item.outcome for item in (await desk.look(DEAD_LETTER)).items] == [Outcome.WAITING] * 3
    assert seam.calls["find"] == asked + 1
    seam.heal()
    await desk.act(DEAD_LETTER)
    await desk.stage.quiet()


async def test_a_look_that_takes_too_long_ends_and_says_that_there_is_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.buried("anna")
    monkeypatch.setattr(one_look, "LOOK_S", 0.0)
    for scope in (IN_DOUBT, DEAD_LETTER):
        looked = await desk.look(scope)
        assert (looked.items, looked.more) == ((), True)
    monkeypatch.undo()
    await desk.act(DEAD_LETTER)
    await desk.stage.quiet()


# --- discarded half messages ------------------------------------------------------------------------------------------


async def test_a_discarded_half_message_raises_the_alarm_and_is_resumed_once_by_five_replays(desk: Desk) -> None:
    """F04: every check was asked in vain. Accepted by the broker is not its end: that is what its reservation says."""
    anna = await with_a_discarded_half(desk.stage, desk.process)
    desk.process.seam.before["resolve"] = away
    await desk.process.sweep("discarded")
    assert counted(DISCARDED_HALVES) == 1, "it stays, and the alarm sees it before anybody looks"
    desk.process.seam.heal()
    done = await asyncio.gather(*[desk.act(DISCARDED) for _ in range(5)])
    assert [item.outcome for it in done for item in it.items] == [Outcome.PENDING] * 5
    assert desk.resumed() == 1
    assert (await desk.act(DISCARDED)).items == ()
    assert (await desk.again(done[0])).outcome is Outcome.PENDING, "nobody consumes yet"
    desk.process.start("order")
    await desk.stage.becomes(anna, "awaiting_payment")
    assert (await desk.again(done[0])).outcome is Outcome.ORDERED
    await desk.stage.quiet()
    await desk.process.sweep("discarded")
    assert counted(DISCARDED_HALVES) == 0
    assert (await desk.stage.ledger()).sql.awaiting_payment == 1


async def test_a_discarded_half_message_that_deducted_nothing_is_asked_about_fenced_and_released(desk: Desk) -> None:
    await desk.discard(batch := await desk.batch_of("anna"))
    done = await desk.act(DISCARDED)
    assert [(item.outcome, item.batch_id) for item in done.items] == [(Outcome.PENDING, batch.batch_id)]
    await until(desk.has_no_halves, "the check-back was answered")
    assert (await desk.again(done)).outcome is Outcome.RELEASED
    await desk.stage.quiet()
    assert await desk.row(batch.candidates[0].reservation_id) is None


@pytest.mark.parametrize("source", [Source.DISCARDED, Source.DEAD_LETTER])
async def test_what_is_past_its_deadline_ends_in_a_release(desk: Desk, source: Source) -> None:
    """Redis was lost, and its epoch ended longer ago than the queue deadline: `not_confirmed`, and no unit is gone."""
    anna = await with_a_discarded_half(desk.stage, desk.process)
    if source is Source.DEAD_LETTER:
        await desk.bury_the_discarded()
    await desk.loses_redis()
    await desk.stage.jump(700)
    done = await desk.act(Scope(source=source))
    desk.process.start("order")
    await until(lambda: desk.row(anna), "its row is there")
    item = await desk.again(done)
    assert (item.outcome, item.reservations[0].reason) == (Outcome.RELEASED, "not_confirmed")
    assert (await desk.look(Scope(source=source))).items == ()
    await desk.stage.quiet()
    assert (await desk.stage.slot()).available == 10


async def test_a_discarded_half_message_whose_reservations_are_decided_is_forgotten(desk: Desk) -> None:
    anna = await with_a_discarded_half(desk.stage, desk.process)
    await desk.act(IN_DOUBT)
    (item,) = (await desk.look(DISCARDED)).items
    assert item.outcome is Outcome.NO_OP
    assert (await desk.look(DISCARDED)).items == (item,), "a look forgets nothing"
    assert [it.outcome for it in (await desk.act(DISCARDED)).items] == [Outcome.NO_OP]
    assert (await desk.look(DISCARDED)).items == ()
    assert desk.resumed() == 0
    await desk.stage.becomes(anna, "awaiting_payment")
    await desk.stage.quiet()


async def test_a_decision_row_alone_forgets_no_winner(desk: Desk) -> None:
    """Anna won and was told so, Bert lost. Redis is lost too: only the discarded body knows what Anna asked for."""
    await desk.discard(batch := await desk.batch_of("anna", "bert"))
    await desk.decide(batch, loser="bert")
    await desk.loses_redis()
    (item,) = (await desk.look(DISCARDED)).items
    assert item.outcome is Outcome.PLANNED
    done = await desk.act(DISCARDED)
    desk.process.start("order")
    await desk.stage.becomes(_id("anna"), "awaiting_payment")
    assert (await desk.again(done)).outcome is Outcome.ORDERED
    assert await desk.row(_id("bert")) is None
    await desk.stage.quiet()


async def test_a_resume_that_the_broker_refuses_leaves_the_message_to_the_next_replay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = await with_a_discarded_half(desk.stage, desk.process)

    async def refused(_: str) -> None:
        raise BrokerRefused("broker", "no such topic")

    monkeypatch.setattr(desk.process.adapters.transport, "resume_discarded", refused)
    assert [item.outcome for item in (await desk.act(DISCARDED)).items] == [Outcome.WAITING]
    monkeypatch.undo()
    assert [item.outcome for item in (await desk.act(DISCARDED)).items] == [Outcome.PENDING]
    assert desk.resumed() == 1
    desk.process.start("order")
    await desk.stage.becomes(anna, "awaiting_payment")
    await desk.stage.quiet()


async def test_the_keeper_may_be_done_with_it_between_the_look_and_the_act(desk: Desk) -> None:
    anna = await with_a_discarded_half(desk.stage, desk.process)
    rival = await desk.stage.process()
    pause = desk.pause_before_resume()
    acting = asyncio.create_task(desk.act(DISCARDED))
    await pause.arrived.wait()
    await rival.sweep("discarded")
    pause.go.set()
    assert [item.outcome for item in (await acting).items] == [Outcome.ORDERED]
    desk.heal_resume()
    assert desk.resumed() == 0
    assert (await desk.stage.get(anna)).code == "awaiting_payment"
    await desk.stage.quiet()


# --- dead letters -----------------------------------------------------------------------------------------------------


async def test_a_dead_letter_becomes_its_order_and_is_forgotten_and_nothing_is_published_again(desk: Desk) -> None:
    """F54: three times over, and two copies of it."""
    anna = await desk.buried("anna", copies=2)
    backlog = await desk.stage.backlog()
    done = await desk.act(DEAD_LETTER)
    assert [item.outcome for item in done.items] == [Outcome.ORDERED] * 2
    assert [(await desk.act(DEAD_LETTER)).items for _ in range(3)] == [()] * 3
    assert await desk.stage.backlog() == backlog
    assert await desk.status(anna) == "awaiting_payment"
    await desk.stage.quiet()
    assert (await desk.stage.ledger()).sql.awaiting_payment == 1


async def test_poison_is_refused_stays_listed_and_keeps_nobody_behind_it_waiting(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranded, "BATCHES_MAX", 2)
    await desk.process.deliver([b"poison", b'{"schema": 99}', b"\xff"])
    await desk.bury()
    for buyer in ("anna", "bert", "carl"):
        await desk.buried(buyer)
    first, second = await desk.act(DEAD_LETTER), await desk.act(DEAD_LETTER)
    assert [item.outcome for item in first.items] == [Outcome.ORDERED] * 2
    assert [item.outcome for item in second.items] == [Outcome.ORDERED, Outcome.REFUSED]
    assert (first.more, second.more, second.settled) == (True, True, False)
    monkeypatch.undo()
    left = (await desk.act(DEAD_LETTER)).items
    assert [item.outcome for item in left] == [Outcome.REFUSED, Outcome.WAITING, Outcome.REFUSED]
    assert all(item.message_id is not None and item.batch_id is None for item in left)
    assert (await desk.look(replace(DEAD_LETTER, sale_id=SALE))).items == ()
    await desk.undo_poison()
    await desk.stage.quiet()


async def test_a_dead_letter_that_cannot_be_decided_now_waits_and_stays(desk: Desk) -> None:
    anna = await desk.buried("anna")
    desk.process.seam.before.update(batches=away)
    (item,) = (await desk.act(DEAD_LETTER)).items
    assert (item.outcome, "no answer" in item.why) == (Outcome.WAITING, True)
    desk.process.seam.before.update(find=away)
    assert [it.outcome for it in (await desk.look(DEAD_LETTER)).items] == [Outcome.WAITING]
    desk.process.seam.heal()
    assert [it.outcome for it in (await desk.act(DEAD_LETTER)).items] == [Outcome.ORDERED]
    await desk.stage.becomes(anna, "awaiting_payment")
    await desk.stage.quiet()


async def test_the_numbers_and_the_list_of_dead_letters_are_the_brokers(desk: Desk) -> None:
    await with_a_discarded_half(desk.stage, desk.process)
    await desk.process.deliver([b"poison"])
    await desk.bury()
    numbers = await desk.process.cases.broker.numbers()
    assert (numbers.halves, numbers.discarded) == (0, 1)
    found = await desk.process.cases.broker.dead_letters()
    assert [(it.body, it.group, found.more) for it in found.letters] == [(b"poison", desk.group, False)]
    await desk.undo_poison()
    await desk.stage.quiet()


# --- killed midway ----------------------------------------------------------------------------------------------------


async def test_a_replay_killed_between_claim_and_resume_is_shown_and_another_does_it_after_the_claim(
    desk: Desk,
) -> None:
    anna = await with_a_discarded_half(desk.stage, desk.process)
    pause = desk.pause_before_resume()
    acting = asyncio.create_task(desk.act(DISCARDED))
    await pause.arrived.wait()
    acting.cancel()
    await asyncio.wait([acting])
    desk.heal_resume()
    killed = await desk.last()
    assert killed.finished_at_ms is None
    assert [item.outcome for item in killed.items] == [Outcome.PENDING]
    (item,) = (await desk.act(DISCARDED)).items
    assert (item.outcome, str(killed.id) in item.why) == (Outcome.PENDING, True)
    assert desk.resumed() == 0
    await desk.stage.jump(CLAIM_MS / 1000)
    await desk.act(DISCARDED)
    assert desk.resumed() == 1
    desk.process.start("order")
    await desk.stage.becomes(anna, "awaiting_payment")
    assert (await desk.again(killed)).outcome is Outcome.ORDERED
    await desk.stage.quiet()


async def test_what_a_dead_replay_has_claimed_the_keeper_ends(desk: Desk) -> None:
    anna = await with_a_discarded_half(desk.stage, desk.process)
    pause = desk.pause_before_resume()
    acting = asyncio.create_task(desk.act(DISCARDED))
    await pause.arrived.wait()
    acting.cancel()
    await asyncio.wait([acting])
    desk.heal_resume()
    await desk.process.sweep("discarded")
    await desk.stage.becomes(anna, "awaiting_payment")
    assert (await desk.again(await desk.last())).outcome is Outcome.ORDERED
    await desk.stage.quiet()


async def test_a_replay_killed_in_mid_order_shows_how_far_it_came_and_runs_again(desk: Desk) -> None:
    for buyer in ("anna", "bert"):
        await desk.queued(buyer)
    pause = Pause()
    desk.process.seam.before["confirm"] = pause
    acting = asyncio.create_task(desk.act(IN_DOUBT))
    await pause.arrived.wait()
    acting.cancel()
    await asyncio.wait([acting])
    desk.process.seam.heal()
    killed = await desk.process.cases.replays.get((await desk.last()).id or ReplayId(""))
    assert [item.outcome for item in killed.items] == [Outcome.ORDERED, Outcome.PLANNED], "its rows say so"
    assert not killed.settled
    assert {item.outcome for item in (await desk.act(IN_DOUBT)).items} == {Outcome.ORDERED}
    await desk.stage.quiet()
    assert (await desk.stage.ledger()).sql.awaiting_payment == 2


@pytest.mark.parametrize("error", [StoreUnavailable("sql", "no answer"), RowRefused("MySQL error 1406")])
async def test_a_replay_ends_where_sql_cannot_note_it_any_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: DropgateError
) -> None:
    for buyer in ("anna", "bert", "carl"):
        await desk.queued(buyer)
    store = desk.store
    end = store.end

    async def fails_at_the_second(replay_id: ReplayId, position: int, item: Item, at_ms: int) -> None:
        if position == 1:
            raise error
        await end(replay_id, position, item, at_ms)

    monkeypatch.setattr(store, "end", fails_at_the_second)
    done = await desk.act(IN_DOUBT)
    monkeypatch.undo()
    assert [item.outcome for item in done.items] == [Outcome.ORDERED, Outcome.ORDERED, Outcome.PLANNED]
    assert (done.finished_at_ms, done.settled) == (None, False)
    assert [item.outcome for item in (await desk.act(IN_DOUBT)).items] == [Outcome.ORDERED]
    await desk.stage.quiet()


async def test_what_sql_will_not_have_begun_was_not_come_to(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for buyer in ("anna", "bert"):
        await desk.queued(buyer)
    store = desk.store
    begin = store.begin

    async def fails_at_the_second(replay: Replay, position: int, *rest: Any, **claims: Any) -> ReplayId | None:
        if position == 1:
            raise RowRefused("MySQL error 1406")
        return await begin(replay, position, *rest, **claims)

    monkeypatch.setattr(store, "begin", fails_at_the_second)
    done = await desk.act(IN_DOUBT)
    monkeypatch.undo()
    assert [item.outcome for item in done.items] == [Outcome.ORDERED, Outcome.PLANNED]
    assert (done.finished_at_ms, done.settled, done.id is None) == (None, False, False)
    await desk.act(IN_DOUBT)
    await desk.stage.quiet()


# --- from the command line --------------------------------------------------------------------------------------------


async def test_the_command_line_looks_acts_and_looks_again_beside_running_processes(desk: Desk) -> None:
    anna = await desk.queued("anna")
    code, looked = await _dropgate(desk.stage, "--source", "in_doubt", "--reservation", anna)
    assert (code, looked["id"], looked["outcomes"]) == (1, None, {"planned": 1})
    code, done = await _dropgate(desk.stage, "--source", "in_doubt", "--apply", "--why", "a test")
    assert (code, done["outcomes"]) == (0, {"ordered": 1})
    code, shown = await _dropgate(desk.stage, "--show", done["id"])
    assert (code, shown["items"][0]["reservations"]) == (
        0,
        [{"id": anna, "status": "awaiting_payment", "reason": None}],
    )
    code, refused = await _dropgate(desk.stage, "--source", "in_doubt", "--reservation", "nobody")
    assert (code, refused["outcomes"]) == (1, {"refused": 1})
    await desk.stage.quiet()


async def _dropgate(stage: Stage, *args: str) -> tuple[int | None, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "service", "replay", "--json", "--home", str(stage.folder), *args),
        env={**os.environ, "DROPGATE_REDIS_URL": stage.server.url},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode, json.loads(output)


def _id(buyer: str, sale_id: SaleId = SALE) -> ReservationId:
    return reservation_id(sale_id, BuyerId(buyer), "k")


def _name(item: Item) -> str:
    """What the item is about: its batch, or the id that was named."""
    return item.batch_id or item.reservations[0].reservation_id
