"""What the keeper owes to all: keys of ended epochs leave Redis whatever failed; no sale waits behind another."""

from __future__ import annotations

import asyncio

import pytest

from service.core.leadership import LEASE_TTL_MS
from service.core.unlinking import LATE_MS
from service.domain.errors import StockUnavailable
from service.domain.ids import SaleId
from service.domain.sale import Authority, SaleStatus
from service.domain.stock import slots_of
from tests.fixtures.seams import Pause, away
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage, until

pytestmark = [pytest.mark.server, pytest.mark.faults]


async def test_keys_of_ended_epochs_leave_redis_whatever_failed(stage: Stage) -> None:
    """The unlink of a reported loss fails, and two loads after it."""
    process = await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=5))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    server = await process.adapters.stock.server_ids(slots_of(SALE, sale.epoch, 1)[0])
    stamps = 0

    async def refuse_twice(*_: object) -> None:
        nonlocal stamps
        stamps += 1
        if stamps <= 2:
            raise StockUnavailable("redis", "a flap")

    process.seam.before |= {"unlink": away, "stamp": refuse_twice}
    await process.adapters.sales.report_lost(SALE, sale.epoch, server, stage.clock.now_ms())
    now = await stage.at_home(after_epoch=sale.epoch + 3)
    assert _epochs(stage) > {now.epoch}
    del process.seam.before["unlink"]
    await until(lambda: _only(stage, now.epoch), "the keys of older epochs are gone")
    await stage.quiet()


async def test_a_settled_sale_leaves_nothing_in_redis_though_redis_was_away(stage: Stage) -> None:
    process = await stage.process("order", "keeper")
    await stage.sale(rules(stock=5, segments=3))
    process.seam.before["unlink"] = away
    await process.cases.sales.close(SALE, ACTOR)
    await process.cases.sales.settle(SALE, ACTOR)
    await until(lambda: _is_under(stage, Authority.SQL), "it is back under SQL")
    assert _epochs(stage)
    process.seam.heal()
    await until(lambda: _only(stage), "nothing is left")


async def test_a_loader_that_slept_past_every_look_owes_one_itself(stage: Stage) -> None:
    """It writes into an epoch whose keys have been unlinked for good, also its stamp."""
    keeper, sleeper = await stage.process("order", "keeper"), await stage.process()
    sale = await stage.sale(rules(stock=5))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await keeper.kill("keeper")
    assert await sleeper.cases.leadership().hold()
    (road,) = [loop for loop in sleeper.cases.keeper_loops(sleeper.settings) if loop.name == "authority"]
    pause = Pause()
    sleeper.seam.before["load_records"] = pause
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    while not pause.arrived.is_set():
        await road.turn()
    dead = await stage.row()
    assert dead.authority is Authority.LOADING
    keeper.start("keeper")
    await stage.jump(LEASE_TTL_MS / 1000)
    now = await stage.at_home(after_epoch=dead.epoch)
    await until(lambda: _looked_at(stage, dead.epoch), "the dead epoch was looked at")
    await stage.jump(LATE_MS / 1000 + 1)
    await until(lambda: _nothing_owed(stage), "and once more, for the last time")
    pause.go.set()
    await road.turn()
    assert _epochs(stage) == {dead.epoch, now.epoch}
    await stage.jump(LATE_MS / 1000 + 1)
    await until(lambda: _only(stage, now.epoch), "what the sleeper wrote is gone")
    await stage.quiet()
    assert sale.epoch < dead.epoch < now.epoch


async def test_many_sales_on_a_silent_redis_are_back_soon_after_it(stage: Stage) -> None:
    process = await stage.process("order", "keeper")
    ids = [SaleId(f"many-{n}") for n in range(20)]
    for sale_id in ids:
        await process.cases.sales.create(sale_id, rules(), ACTOR)
        await process.adapters.sales.set_status(sale_id, SaleStatus.DRAFT, SaleStatus.OPEN, stage.clock.now_ms())
        await process.adapters.sales.want_redis(sale_id)
    for sale_id in ids:
        await stage.at_home(sale_id)
    await asyncio.to_thread(stage.server.restart)
    for sale_id in ids:
        await stage.at_home(sale_id, after_epoch=2)


# ----------------------------------------------------------------------------------------------------------------------


def _epochs(stage: Stage) -> set[int]:
    """Epochs that have keys in Redis."""
    keys = stage.server.call("KEYS", "dg:*")
    assert isinstance(keys, list)
    return {int(str(key).split(":")[-2]) for key in keys}


async def _only(stage: Stage, *epochs: int) -> bool:
    return await asyncio.to_thread(_epochs, stage) == set(epochs)


async def _is_under(stage: Stage, authority: Authority) -> bool:
    return (await stage.row()).authority is authority


async def _looked_at(stage: Stage, epoch: int) -> bool:
    owed = await stage.first.adapters.sales.owed_unlinks(stage.clock.now_ms() + 2 * LATE_MS, 99)
    return [it.due_at_ms > it.ended_at_ms for it in owed if it.epoch == epoch] == [True]


async def _nothing_owed(stage: Stage) -> bool:
    return not await stage.first.adapters.sales.owed_unlinks(stage.clock.now_ms() + 2 * LATE_MS, 99)
