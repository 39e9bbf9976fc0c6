"""The same batch twice, whole or in parts: what was decided once is not decided again (failures F03, F20, F31)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from service.adapters.redis.stock import RedisStock
from service.core.fates import Waiting
from service.domain.batch import BatchMessage, encode
from service.domain.errors import RowRefused
from service.domain.ids import ReservationId
from service.domain.sale import Authority
from service.ports.messaging import Delivery, RetryAfter
from service.ports.orders import LEADER_LEASE
from tests.fixtures.seams import away
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_BOTH_STACKS
from tests.fixtures.stage import SALE, Process, Stage, counted

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.server,
    pytest.mark.faults,
    ON_BOTH_STACKS,
]

WRITE_OFFS = "dropgate_write_offs_total"


async def _message_again(process: Process, batches: list[BatchMessage]) -> None:
    await process.cases.intake.decide(batches)


async def _sweep_of_batches(process: Process, batches: list[BatchMessage]) -> None:
    await process.sweep("undelivered")


async def _sweep_of_what_is_owed(process: Process, batches: list[BatchMessage]) -> None:
    await process.sweep("owed")


@pytest.mark.parametrize("again", [_message_again, _sweep_of_batches, _sweep_of_what_is_owed])
async def test_a_write_off_stays_one_whoever_repeats_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, again: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    """F31 with F03: SQL has 5, Redis was given 10; the consumer dies after its COMMIT, and somebody comes again."""
    process = await _over_granted(stage, monkeypatch, stock=5, granted=10)
    await asyncio.gather(*[stage.reserve(f"b-{number}") for number in range(10)])
    batches = await stage.undelivered()
    process.seam.before["confirm"] = away
    await process.cases.intake.decide(batches)
    process.seam.heal()
    await stage.jump(60)
    alarms = counted(WRITE_OFFS, sale=SALE)
    await again(process, batches)
    await stage.quiet()
    assert counted(WRITE_OFFS, sale=SALE) - alarms == 5
    assert ((await stage.slot()).granted, (await stage.slot()).available) == (5, 0)


async def test_a_cancelled_order_that_is_met_again_gives_back_once(stage: Stage) -> None:
    """F20 with F03: its release is still owed when its message comes again; and once more when it is not."""
    process = await stage.process("keeper")
    await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna")
    batches = await stage.undelivered()
    await process.stop("keeper")
    process.seam.before.update(confirm=away, end=away)
    await process.cases.intake.decide(batches)
    await stage.cancel(anna.reservation_id)
    process.seam.heal()
    for _ in range(2):
        await process.cases.intake.decide(batches)
        assert ((await stage.slot()).available, (await stage.slot()).held) == (1, 0)
        assert (await stage.ledger()).sql.owed == 0
    await stage.quiet()


async def test_a_claim_that_sql_can_serve_in_part_strands_less_than_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31: pairs against 5 units, Redis was given 10. The odd one is not sold until the next load, and nobody is told
    `queued` for it in vain (decision 28)."""
    process = await _over_granted(stage, monkeypatch, stock=5, granted=10, limit=2)
    heard = [await stage.reserve(f"b-{number}", quantity=2) for number in range(5)]
    await process.cases.intake.decide(await stage.undelivered())
    codes = [(await stage.get(it.reservation_id)).code for it in heard]
    assert codes == ["awaiting_payment"] * 2 + ["rejected"] * 3
    ledger, slot = await stage.ledger(), await stage.slot()
    assert (ledger.sql.available, slot.available) == (1, 0)
    assert ledger.problems() == ("I1: SQL has 1 available, Redis 0, and nothing is under way",)
    # A load counts anew.
    process.start("keeper")
    epoch = (await stage.row()).epoch
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await stage.reserve("who-notices")
    await stage.at_home(after_epoch=epoch)
    await stage.quiet()
    assert (await stage.slot()).available + (await stage.slot()).ordered == 5


async def test_a_batch_of_which_half_waits_is_not_acked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A permanent error bisects a batch; the authority changes between its halves: one is done, one comes again."""
    process = await stage.process("keeper", lanes=1)
    await stage.sale(rules(stock=10))
    heard = await asyncio.gather(*[stage.reserve(f"b-{number}") for number in range(6)])
    batch = max(await stage.undelivered(), key=lambda it: len(it.candidates))
    assert len(batch.candidates) >= 2
    await process.stop("keeper")
    transaction = process.cases.intake._transaction
    run, calls = transaction.run, 0

    async def refused_once_and_then_late(claims: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RowRefused("somebody's value is too long")
        if calls == 3:
            await _leave_redis(process, stage)
        return await run(claims)

    monkeypatch.setattr(transaction, "run", refused_once_and_then_late)
    delivery = _delivery(stage, batch)
    ((_, outcome),) = await process.cases.intake.process([delivery])
    rows = await stage.orders([it.reservation_id for it in batch.candidates])
    assert 0 < len(rows) < len(batch.candidates)
    assert isinstance(outcome, RetryAfter), outcome
    fates = await process.cases.intake.decide([batch])
    assert batch.batch_id in fates.ended() or isinstance(fates[batch.batch_id], Waiting)
    for it in heard:
        await _becomes_in_the_end(stage, it.reservation_id)


# ----------------------------------------------------------------------------------------------------------------------


async def _over_granted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, stock: int, granted: int, limit: int = 1
) -> Process:
    """A sale whose slot was given more than SQL has. No loop runs any more."""
    load = RedisStock.load_stock

    async def load_more(self: RedisStock, *args: Any, **terms: Any) -> Any:
        return await load(self, *args, **(terms | {"available": granted}))

    process = await stage.process("keeper")
    with monkeypatch.context() as patch:
        patch.setattr(RedisStock, "load_stock", load_more)
        await stage.sale(rules(stock=stock, limit=limit))
    await process.stop("keeper")
    return process


async def _leave_redis(process: Process, stage: Stage) -> None:
    sales, now_ms, row = process.adapters.sales, stage.clock.now_ms(), await stage.row()
    assert await sales.acquire_lease(LEADER_LEASE, "me", now_ms, 60_000)
    left = await sales.change_authority(
        SALE, leader="me", expected=(row.authority, row.epoch), to=Authority.SQL, now_ms=now_ms
    )
    assert left is not None
    await sales.release_lease(LEADER_LEASE, "me")


async def _becomes_in_the_end(stage: Stage, id_: ReservationId) -> None:
    for loop in ("order", "keeper"):
        if not stage.first.runs(loop):
            stage.first.start(loop)
    await stage.becomes(id_, "awaiting_payment")


def _delivery(stage: Stage, batch: BatchMessage) -> Delivery:
    return Delivery(
        topic=stage.topics.order.name,
        message_id="m",
        key=batch.batch_id,
        body=encode(batch),
        attempt=1,
        born_at_ms=stage.clock.now_ms(),
        receipt=None,
    )
