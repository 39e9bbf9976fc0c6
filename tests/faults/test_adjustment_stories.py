"""Stock adjustments: a refusal is for good, whoever hears of it late, and one that is stuck holds up no other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from service.adapters.redis.stock import RedisStock
from service.domain.errors import Conflict, InvalidRequest, StockUnavailable
from service.domain.ids import SaleId
from service.domain.sale import Authority
from tests.fixtures.seams import Pause, away
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Process, Stage, until

pytestmark = [pytest.mark.server, pytest.mark.faults]

OTHER = SaleId("sneaker-02")
LEFT_ALONE_S = 6


@pytest.mark.parametrize("authority", [Authority.SQL, Authority.REDIS])
async def test_a_refused_decrease_takes_nothing_when_units_come_back(stage: Stage, authority: Authority) -> None:
    process = await stage.process("order", "keeper")
    await stage.sale(replace(rules(stock=5), wanted_authority=authority))
    heard = [await stage.reserve(f"b-{number}") for number in range(3)]
    for answer in heard:
        await stage.becomes(answer.reservation_id, "awaiting_payment")
    with pytest.raises(Conflict, match="stock_too_low"):
        await process.cases.sales.adjust(SALE, "minus", -4, ACTOR)
    for answer in heard:
        await stage.cancel(answer.reservation_id)
    await stage.jump(LEFT_ALONE_S)
    assert await process.cases.adjusting.turn() == 0
    assert (await stage.row()).adjusted == 0
    with pytest.raises(InvalidRequest, match="withdrawn"):
        await process.cases.sales.adjust(SALE, "minus", -4, ACTOR)
    await stage.quiet()


async def _short_in_sql(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Process:
    """Redis has ten units where SQL has five."""
    load = RedisStock.load_stock

    async def load_ten(self: RedisStock, *args: Any, **terms: Any) -> Any:
        return await load(self, *args, **(terms | {"available": 10}))

    process = await stage.process("keeper")
    with monkeypatch.context() as patch:
        patch.setattr(RedisStock, "load_stock", load_ten)
        await stage.sale(rules(stock=5))
    return process


async def test_what_redis_gave_for_a_decrease_that_sql_refuses_goes_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await _short_in_sql(stage, monkeypatch)
    before = await stage.slot()
    with pytest.raises(Conflict, match="stock_too_low"):
        await process.cases.sales.adjust(SALE, "minus", -7, ACTOR)
    assert await stage.slot() == before
    row = await stage.row()
    assert (row.available, row.adjusted) == (5, 0)
    assert await process.adapters.orders.unfinished_adjustments(stage.clock.now_ms() + 1, 9) == []


async def test_the_keeper_gives_back_what_a_dead_refusal_left_taken(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await _short_in_sql(stage, monkeypatch)
    before = await stage.slot()

    async def back_is_lost(_slot: object, adjustment_id: str, _delta: int) -> None:
        if adjustment_id != "minus":
            raise StockUnavailable("redis", "no answer")

    await process.stop("keeper")
    process.seam.before["adjust"] = back_is_lost
    with pytest.raises(Conflict, match="stock_too_low"):
        await process.cases.sales.adjust(SALE, "minus", -7, ACTOR)
    assert (await stage.slot()).available == before.available - 7
    assert (await stage.ledger()).under_way() == ("1 adjustment is not finished",)
    process.seam.heal()
    await stage.jump(LEFT_ALONE_S)
    assert await process.cases.adjusting.turn() == 1
    assert await stage.slot() == before
    assert await process.cases.adjusting.turn() == 0
    assert await stage.slot() == before


async def test_a_refusal_heard_late_takes_nothing_away_from_what_was_applied_since(stage: Stage) -> None:
    """A was refused and sleeps; a unit comes back, Redis is lost, and the keeper applies the decrease in the next
    epoch."""
    keeper, api = await stage.process("keeper", "order"), await stage.process()
    sale = await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    pause = Pause()
    api.seam.after["adjust"] = pause.then
    decrease = asyncio.create_task(api.cases.sales.adjust(SALE, "minus", -1, ACTOR))
    await pause.arrived.wait()
    await stage.cancel(anna.reservation_id, at=keeper)
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await stage.at_home(after_epoch=sale.epoch)
    await stage.jump(LEFT_ALONE_S)

    async def applied() -> bool:
        return (await stage.row()).adjusted == -1

    await until(applied, "the keeper applied it")
    pause.go.set()
    await asyncio.gather(decrease, return_exceptions=True)
    assert (await stage.row()).adjusted == -1
    await stage.quiet()


async def test_an_increase_is_not_called_paid_by_who_saw_an_older_epoch(stage: Stage) -> None:
    """The keeper read the sale before the loss, and the adjustment after a rival had applied it in the next epoch."""
    rival, sleeper = await stage.process("keeper"), await stage.process()
    old = await stage.sale(rules(stock=1))
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await stage.reserve("whoever meets the loss")
    await stage.at_home(after_epoch=old.epoch)
    await rival.stop("keeper")
    rival.seam.before["adjust"] = away
    with pytest.raises(Exception, match="may or may not"):
        await rival.cases.sales.adjust(SALE, "plus", 3, ACTOR)
    with pytest.raises(Exception, match="may or may not"):
        await sleeper.cases.adjusting.adjust(old, "plus", 3, ACTOR)
    rival.seam.heal()
    await stage.jump(LEFT_ALONE_S)
    await stage.quiet()
    assert (await stage.slot()).available == 4


async def test_one_that_cannot_be_finished_holds_up_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.core.adjusting.FINISH_A_TURN", 3)
    process = await stage.process("keeper")
    await stage.sale(rules(stock=9))
    await stage.sale(rules(stock=9), OTHER)
    await process.stop("keeper")
    process.seam.before["adjust"] = away
    for number, sale_id in enumerate([SALE, SALE, SALE, OTHER]):
        with pytest.raises(Exception, match="may or may not"):
            await process.cases.sales.adjust(sale_id, f"a-{number}", -1, ACTOR)
        await asyncio.sleep(0.002)

    async def one_slot_is_away(slot: Any, *_: Any) -> None:
        if slot.sale_id == SALE:
            raise StockUnavailable("redis", "no answer")

    process.seam.before["adjust"] = one_slot_is_away
    await stage.jump(LEFT_ALONE_S)
    with pytest.raises(StockUnavailable):
        await process.cases.adjusting.turn()
    assert await process.cases.adjusting.turn() == 1, "the fourth, and no spinning on those that failed"
    assert (await stage.row(OTHER)).adjusted == -1
    assert await process.cases.adjusting.turn() == 0, "the three are left alone for a while"
    process.seam.heal()
    await stage.jump(LEFT_ALONE_S)
    assert await process.cases.adjusting.turn() == 3
    await stage.quiet()
