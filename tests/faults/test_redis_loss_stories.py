"""Redis is lost in mid-sale: what buyers were told stays true, and no unit is sold twice (F42, F44; design §3.3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from service.domain import road
from service.domain.ids import BuyerId, reservation_id
from service.domain.sale import Authority, OnRedisLoss, Sale
from service.domain.stock import Refusal, Reserved
from tests.fixtures.seams import Pause, away, reply_lost
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage, until
from tests.fixtures.told import Heard

pytestmark = [pytest.mark.server, pytest.mark.faults]


async def test_a_restart_in_mid_sale_loses_nothing_and_sells_nothing_twice(stage: Stage) -> None:
    """Queued, ordered, paid, cancelled and in doubt when it happens; then the rest is sold to the last unit."""
    process, other = await stage.process("order", "keeper"), await stage.process()
    sale = await stage.sale(rules(stock=20))
    ordered = [await stage.reserve(f"ordered-{number}") for number in range(4)]
    for it in ordered:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    await stage.pay(ordered[0].reservation_id)
    await stage.cancel(ordered[1].reservation_id)
    await process.kill("order")
    queued = [await stage.reserve(f"queued-{number}") for number in range(4)]
    await stage.cancel(queued[0].reservation_id)
    other.seam.after["reserve"] = reply_lost
    in_doubt = [await stage.reserve(f"doubt-{number}", at=other) for number in range(4)]
    other.seam.heal()
    async with stage.polled(*[it.reservation_id for it in (*ordered, *queued, *in_doubt)], every_s=0.05):
        await asyncio.to_thread(stage.server.restart)
        process.start("order")
        after = await stage.at_home(after_epoch=sale.epoch)
        for it in (*queued[1:], *in_doubt):
            await stage.becomes(it.reservation_id, "awaiting_payment")
    assert after.epoch == sale.epoch + 2, "redis -> sql -> loading, redis"
    late = await asyncio.gather(*[stage.reserve(f"late-{number}") for number in range(20)])
    assert Counter(it.code for it in late) == {"queued": 10, "sold_out": 10}
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 0


async def test_an_older_message_that_comes_late_finds_a_unit_or_is_told_so(stage: Stage) -> None:
    """Its epoch is over and Redis decides again: it is reserved again, `ended` in Redis before its row says so."""
    await stage.process("keeper")
    consumer = await stage.process()
    sale = await stage.sale(rules(stock=2))
    anna, bert = await stage.reserve("anna"), await stage.reserve("bert")
    await _lose(stage, sale.epoch)
    carl = await stage.reserve("carl")
    assert carl.code == "queued", "nobody knows of the others yet: they compete"
    buyers = {anna.id: "anna", bert.id: "bert"}
    heard: list[Heard] = []

    async def look_before_the_row(reply: Reserved) -> Reserved:
        for id_, answer in reply.answers.items():
            if isinstance(answer, Refusal):
                heard.extend([await stage.get(id_), await stage.reserve(buyers[id_])])
        return reply

    consumer.seam.after["reserve"] = look_before_the_row
    consumer.start("order")
    await stage.quiet()
    assert [it.code for it in heard] == ["outcome_unknown"] * 2, "GET, and a retry with the same key"
    ends = Counter([(await stage.get(it.reservation_id)).code for it in (anna, bert, carl)])
    assert ends == {"awaiting_payment": 2, "rejected": 1}
    assert (await stage.get(carl.reservation_id)).code == "awaiting_payment"


async def test_a_buyer_with_two_keys_around_a_loss_has_one_unit(stage: Stage) -> None:
    """The new epoch's Redis does not know of the first one: its limit is met when the older message comes."""
    process = await stage.process("keeper")
    sale = await stage.sale(rules(stock=5))
    before = await stage.reserve("anna", "before")
    await _lose(stage, sale.epoch)
    after = await stage.reserve("anna", "after")
    assert after.code == "queued"
    process.start("order")
    await stage.quiet()
    assert (await stage.get(before.reservation_id)).reason == "limit_reached"
    assert (await stage.get(after.reservation_id)).code == "awaiting_payment"


async def test_a_retry_told_queued_keeps_its_word_though_nobody_committed(stage: Stage) -> None:
    """The deduct's reply was lost: UNKNOWN. Redis is lost before the leader knows: UNKNOWN again, never ROLLBACK."""
    keeper, api = await stage.process("order", "keeper"), await stage.process()
    await stage.sale()
    api.seam.after["reserve"] = reply_lost
    pause = Pause()
    for process in (keeper, api):
        process.seam.before["resolve"] = pause
        process.seam.before["undelivered"] = away
    assert (await stage.reserve("anna", at=api)).is_unknown
    again = await stage.reserve("anna", at=api)
    assert again.code == "queued"
    await pause.arrived.wait()
    # The leader and its sweeps are paused, and the check-back meets an empty Redis in an epoch that still stands.
    await keeper.kill("keeper")
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    pause.go.set()
    keeper.seam.heal()
    api.seam.heal()
    await until(lambda: _reported(stage), "the check-back reported the loss")
    assert (await stage.backlog()).halves == 1
    keeper.start("keeper")
    await stage.becomes(again.reservation_id, "awaiting_payment")
    await stage.quiet()


async def test_a_fenced_batch_stays_without_effect_through_a_loss(stage: Stage) -> None:
    """Its message is gone: had the late deduct counted, its buyer would have been promised what nobody can deliver."""
    paused = await stage.process()
    await stage.process("order", "keeper")
    sale = await stage.sale()
    pause = Pause()
    paused.seam.before["reserve"] = pause
    asking = asyncio.create_task(stage.reserve("anna", at=paused))
    await pause.arrived.wait()
    await until(lambda: _no_halves(stage), "the check-back was answered")
    pause.go.set()
    assert (await asking).is_unknown
    await _lose(stage, sale.epoch)
    assert (await stage.get(reservation_id(SALE, BuyerId("anna"), "k"))).is_unknown
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 10


async def test_an_unknown_id_is_in_doubt_until_the_deadline_and_then_not_found(stage: Stage) -> None:
    """503 while it may yet appear, counted from the end of its epoch; after the 404 no message makes it live."""
    process, api = await stage.process("keeper"), await stage.process()
    sale = await stage.sale()
    unknown = reservation_id(SALE, BuyerId("nobody"), "k")
    assert (await stage.get(unknown)).code == "not_found"
    api.seam.after["reserve"] = reply_lost
    in_doubt = await stage.reserve("anna", at=api)
    api.seam.heal()
    await _lose(stage, sale.epoch)
    for id_ in (unknown, in_doubt.reservation_id):
        assert (await stage.get(id_)).code == "outcome_unknown"
    await stage.jump(599)
    assert (await stage.get(unknown)).code == "outcome_unknown"
    await stage.jump(2 + stage.settings.not_found_margin_s)
    for id_ in (unknown, in_doubt.reservation_id):
        assert (await stage.get(id_)).code == "not_found"
    process.start("order")
    assert (await stage.becomes(in_doubt.reservation_id, "rejected")).reason == "not_confirmed"
    await stage.quiet()


async def test_a_queued_reservation_has_its_deadline_from_the_end_of_its_epoch(stage: Stage) -> None:
    """Queued for 500 s, then the loss, then 300 s more: it is in time. Another one is not, after 601 s."""
    process = await stage.process("keeper")
    sale = await stage.sale()
    anna = await stage.reserve("anna")
    await stage.jump(500)
    sale = await _lose(stage, sale.epoch)
    bert = await stage.reserve("bert")
    await stage.jump(300)
    process.start("order")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await stage.becomes(bert.reservation_id, "awaiting_payment")
    await process.kill("order")
    carl = await stage.reserve("carl")
    await _lose(stage, sale.epoch)
    await stage.jump(601)
    process.start("order")
    assert (await stage.becomes(carl.reservation_id, "rejected")).reason == "not_confirmed"
    await stage.quiet()


async def test_a_refusal_is_not_final_while_an_older_candidate_may_win(stage: Stage) -> None:
    process = await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=1, limit=2))
    two = await stage.reserve("anna", "0", quantity=2)
    assert (two.code, two.final) == ("sold_out", True), "no unit is held, and no older epoch sold"
    await _lose(stage, sale.epoch)
    two = await stage.reserve("anna", "1", quantity=2)
    assert (two.code, two.final) == ("sold_out", False)
    await stage.jump(601)
    two = await stage.reserve("anna", "2", quantity=2)
    assert (two.code, two.final) == ("sold_out", True)
    assert process.runs("keeper")
    await stage.quiet()


async def test_a_loss_is_bridged_by_sql_where_the_sale_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """F44: forty sold by Redis, ten of them queued; SQL sells on; Redis comes back: a hundred in all."""
    monkeypatch.setattr(road, "REDIS_AWAY_S", 0.5)
    process = await stage.process("order", "keeper")
    sale = await stage.sale(replace(rules(stock=100), on_redis_loss=OnRedisLoss.SQL))
    heard = list(await asyncio.gather(*[stage.reserve(f"redis-{number}") for number in range(30)]))
    await process.kill("order")
    heard += await asyncio.gather(*[stage.reserve(f"queued-{number}") for number in range(10)])
    await asyncio.to_thread(stage.server.kill)
    process.start("order")
    await until(lambda: _under(stage, Authority.SQL), "Redis counts as lost")
    await stage.jump(91)
    bridged = await asyncio.gather(*[stage.reserve(f"sql-{number}") for number in range(20)])
    assert {it.code for it in bridged} == {"awaiting_payment"}
    await asyncio.to_thread(stage.server.start)
    await stage.at_home(after_epoch=sale.epoch)
    rest = await asyncio.gather(*[stage.reserve(f"again-{number}") for number in range(50)])
    assert Counter(it.code for it in rest) == {"queued": 40, "sold_out": 10}
    again = await stage.reserve("sql-0", "another")
    assert again.code == "limit_reached", "no buyer twice"
    await process.cases.sales.close(SALE, ACTOR)
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 0


# ----------------------------------------------------------------------------------------------------------------------


async def _lose(stage: Stage, epoch: int) -> Sale:
    """FLUSHALL, and what follows: the sale as it is when Redis is loaded again."""
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    return await stage.at_home(after_epoch=epoch)


async def _no_halves(stage: Stage) -> bool:
    return (await stage.backlog()).halves == 0


async def _reported(stage: Stage) -> bool:
    return (await stage.row()).lost is not None


async def _under(stage: Stage, authority: Authority) -> bool:
    return (await stage.row()).authority is authority
