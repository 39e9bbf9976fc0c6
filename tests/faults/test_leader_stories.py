"""Leaders and loads: what straddles a loss, a pause or another leader counts for nothing (design §3.3)."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.ids import ReservationId
from service.domain.sale import Authority, ServerIds
from service.domain.stock import LoadRefused, Slot
from tests.fixtures.seams import Once, Pause, away, reply_lost
from tests.fixtures.sql import rules
from tests.fixtures.stage import SALE, Process, Stage, until

pytestmark = [pytest.mark.server, pytest.mark.faults]

LONGER_THAN_A_LEASE_S = 10


@pytest.mark.parametrize("step", ["load_records", "load_stock", "stamp"])
async def test_a_load_that_meets_another_server_midway_is_refused_and_begun_anew(stage: Stage, step: str) -> None:
    """The server restarts between snapshot and load, between two load calls, before the stamp."""
    keeper = await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=5))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    refused: list[LoadRefused] = []

    async def note(reply: object) -> object:
        if isinstance(reply, LoadRefused):
            refused.append(reply)
        return reply

    keeper.seam.before[step] = Once(lambda: asyncio.to_thread(stage.server.restart))
    keeper.seam.after[step] = note
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    after = await stage.at_home(after_epoch=sale.epoch)
    assert after.epoch > sale.epoch + 2, "each attempt is an epoch of its own"
    assert [it.stamped for it in refused] in ([False], []), "or the call failed in the restart"
    await stage.quiet()
    assert (await stage.slot()).available == 4


async def test_redis_that_goes_away_during_the_load_sends_the_sale_back_to_sql(stage: Stage) -> None:
    keeper = await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=5))
    keeper.seam.before["load_stock"] = away
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await until(lambda: _tries(keeper.seam.calls["load_stock"]), "two attempts failed")
    keeper.seam.heal()
    assert (await stage.at_home(after_epoch=sale.epoch + 2)).authority is Authority.REDIS
    assert (await stage.reserve("anna")).code == "queued"
    await stage.quiet()


async def test_a_loader_that_slept_through_its_lease_loads_nothing_into_its_successors_epoch(stage: Stage) -> None:
    """Two leaders: the first is paused in mid-load, the second loads, and stock is sold; then the first goes on."""
    second, first = await stage.process("order", "keeper"), await stage.process()
    await stage.sale(rules(stock=3))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await second.kill("keeper")
    assert await first.cases.leadership().hold()
    pause = Pause()
    first.seam.before["load_stock"] = pause
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    loading = asyncio.create_task(_lead(stage, first))
    await pause.arrived.wait()
    between = await stage.row()
    assert between.authority is Authority.LOADING
    second.start("keeper")
    await stage.jump(LONGER_THAN_A_LEASE_S)
    after = await stage.at_home(after_epoch=between.epoch)
    bert = await stage.reserve("bert")
    await stage.cancel(anna.reservation_id)
    pause.go.set()
    await loading
    assert (await stage.reserve("carl")).code == "queued"
    await stage.becomes(bert.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert (await stage.row()).epoch == after.epoch
    assert (await stage.slot()).available == 1


async def test_a_decided_batch_whose_half_message_was_discarded_is_swept_into_an_order(stage: Stage) -> None:
    """Every check was asked in vain and no message will come: the stored body is enough. No message is sent again."""
    process, anna = await _with_a_discarded_half(stage)
    await stage.jump(60)
    await process.sweep("undelivered")
    assert (await stage.get(anna)).code == "awaiting_payment"
    assert (await stage.backlog()).undelivered == 0
    await stage.quiet()


async def test_a_discarded_half_message_of_an_older_epoch_is_decided_from_its_body(stage: Stage) -> None:
    """F04 with a loss: Redis knows nothing any more, and the broker asks no more. Its buyer was told `queued`."""
    process, anna = await _with_a_discarded_half(stage)
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    process.start("keeper")
    await stage.becomes(anna, "awaiting_payment")
    await stage.quiet()


async def test_a_report_of_a_misrouted_process_changes_nothing(stage: Stage) -> None:
    """It names another server than the leader's and the stamp's: an alarm, no loss."""
    await stage.process("order", "keeper")
    sale = await stage.sale()
    store = stage.first.adapters.sales
    elsewhere = ServerIds(run_id="f" * 40, replid="e" * 40)
    assert await store.report_lost(SALE, sale.epoch, elsewhere, stage.clock.now_ms())
    await until(lambda: _no_report(stage), "the report was dismissed")
    await stage.see()
    assert (await stage.row()).epoch == sale.epoch
    assert (await stage.reserve("anna")).code == "queued"
    await stage.quiet()


async def test_a_loss_that_was_reported_once_stays_one(stage: Stage) -> None:
    """The server that the report names is the leader's own, and looks well again: it is rebuilt all the same."""
    process = await stage.process("order", "keeper")
    sale = await stage.sale()
    server = await process.adapters.stock.server_ids(_slot(sale.epoch))
    await process.adapters.sales.report_lost(SALE, sale.epoch, server, stage.clock.now_ms())
    await stage.at_home(after_epoch=sale.epoch)
    await stage.quiet()


# ----------------------------------------------------------------------------------------------------------------------


async def _with_a_discarded_half(stage: Stage) -> tuple[Process, ReservationId]:
    """A buyer who was told `queued`; nobody heard of the deduct, and the broker has given up asking."""
    stage.settings = stage.settings.model_copy(update={"transaction_check_max": 1})
    process = await stage.process("keeper")
    await stage.sale()
    await process.kill("keeper")
    process.seam.after["reserve"] = reply_lost
    process.seam.before["resolve"] = away
    assert (await stage.reserve("anna")).is_unknown
    process.seam.heal()
    process.seam.before["resolve"] = away
    anna: ReservationId = (await stage.reserve("anna")).reservation_id
    assert (await stage.get(anna)).code == "queued"
    await until(lambda: _discarded(stage), "the half message was discarded")
    process.seam.heal()
    return process, anna


async def _lead(stage: Stage, leader: Process) -> None:
    """Turn after turn of the road, without ever renewing the lease."""
    epoch = (await stage.row()).epoch
    while (await stage.row()).epoch < epoch + 2:
        await leader.sweep("authority")
        await asyncio.sleep(0.05)


async def _discarded(stage: Stage) -> bool:
    return len(await stage.first.adapters.transport.discarded(10)) == 1


async def _tries(calls: int) -> bool:
    return calls >= 2


async def _no_report(stage: Stage) -> bool:
    return (await stage.row()).lost is None


def _slot(epoch: int) -> Slot:
    return Slot(sale_id=SALE, segment=0, epoch=epoch)
