"""Ending a reservation where the row is held, the COMMIT fails, or the stores change under it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from service.core import ending
from service.core.ending import Ended, EndingService
from service.domain.errors import Busy, OutcomeUnknown, StoreUnavailable
from service.domain.ids import ReservationId
from service.domain.reservation import Reason
from service.ports.orders import SaleTransaction
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage, counted

pytestmark = [pytest.mark.server, pytest.mark.faults]

CALLERS = 80


async def _orders(stage: Stage, number: int) -> list[ReservationId]:
    ids = [(await stage.reserve(f"b-{it}")).reservation_id for it in range(number)]
    for id_ in ids:
        await stage.becomes(id_, "awaiting_payment")
    return ids


async def test_too_many_callers_at_a_stuck_sale_hear_429_and_the_process_stays_fit_to_sell(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eighty buyers cancel while a rival holds the row: its view stays fresh, and whoever waited is cancelled."""
    monkeypatch.setattr(ending, "WAITING_MAX", 20)
    rival, process = await stage.process("order", "keeper"), await stage.process()
    await stage.sale(rules(stock=CALLERS))
    ids = await _orders(stage, CALLERS)
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(_: SaleTransaction) -> None:
        held.set()
        await release.wait()

    holding = asyncio.create_task(rival.adapters.orders.transact([SALE], hold))
    await held.wait()
    cancels = [asyncio.create_task(_outcome(process.cases.endings, id_)) for id_ in ids]
    for _ in range(3):
        await asyncio.sleep(0.1)
        await process.cases.refresh()
        assert process.cases.directory.is_fresh
    release.set()
    heard = Counter(await asyncio.gather(*cancels))
    await holding
    assert heard == {"cancelled": 20, "too_busy": CALLERS - 20}
    assert [await _outcome(process.cases.endings, id_) for id_ in ids] == ["cancelled"] * CALLERS
    await stage.quiet()


async def _outcome(endings: EndingService, id_: ReservationId) -> str:
    try:
        return (await endings.cancel(id_, Reason.BUYER_CANCELLED)).status.value
    except Busy as error:
        return error.code


async def test_an_ending_is_counted_once_it_is_committed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.process("order", "keeper")
    await stage.sale(rules(stock=2))
    (id_,) = await _orders(stage, 1)
    before = _ended()

    async def fails(_: AsyncConnection) -> None:
        raise exc.OperationalError("COMMIT", {}, OSError("disk I/O error"))

    with monkeypatch.context() as patch:
        patch.setattr(AsyncConnection, "commit", fails)
        with pytest.raises(StoreUnavailable):
            await stage.first.cases.endings.cancel(id_, Reason.OPERATOR_CANCELLED)
    assert _ended() == before
    await stage.cancel(id_, "operator_cancelled")
    await stage.cancel(id_, "operator_cancelled")
    assert _ended() == before + 1
    await stage.quiet()


def _ended() -> float:
    return counted("dropgate_ended_total", sale=SALE, reason="operator_cancelled")


async def test_starting_over_pauses_and_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await stage.process("keeper")
    await stage.sale(rules(stock=2))
    told = await stage.reserve("anna")
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def changes_again(*_: object) -> Ended | None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(EndingService, "_try_to_cancel", changes_again)
        patch.setattr(process.adapters.clock, "sleep", sleep)
        with pytest.raises(OutcomeUnknown):
            await process.cases.endings.cancel(told.reservation_id, Reason.BUYER_CANCELLED)
    assert len(slept) == ending.STARTS_OVER_MAX - 1
    assert all(0 <= pause < 1 for pause in slept)
    assert len(set(slept)) == len(slept), "with jitter"
    await process.cases.sales.close(SALE, ACTOR)
    await stage.quiet()
