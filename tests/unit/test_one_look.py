"""One look of a replay: who does not answer is asked once, and the look ends."""

from __future__ import annotations

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.memory.stock import MemoryStock
from service.core import one_look
from service.core.one_look import OneLook
from service.core.replay_cases import Case, Listed, Resume
from service.domain.errors import StockUnavailable
from service.domain.replay import Item, Outcome
from service.domain.stock import Slot
from tests.fixtures.domain import SALE
from tests.fixtures.seams import Seam, away

SLOT, OTHER = (Slot(sale_id=SALE, segment=segment, epoch=1) for segment in (0, 1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def seam(clock: ManualClock) -> Seam:
    return Seam(MemoryStock(clock))


async def test_a_slot_that_does_not_answer_is_asked_once(seam: Seam, clock: ManualClock) -> None:
    look = OneLook(seam, clock)
    seam.before["find"] = away
    for _ in range(100):
        with pytest.raises(StockUnavailable):
            await look.find(SLOT, [])
        with pytest.raises(StockUnavailable):
            await look.batches(SLOT, [])
    assert seam.calls == {"find": 1}
    await look.batches(OTHER, [])
    await OneLook(seam, clock).batches(SLOT, [])
    assert seam.calls == {"find": 1, "batches": 2}, "the next look asks again"


async def test_a_look_asks_nobody_once_its_time_is_over(seam: Seam, clock: ManualClock) -> None:
    look = OneLook(seam, clock)
    await look.undelivered(SLOT, 0, 1)
    assert not look.is_over()
    await clock.advance(one_look.LOOK_S)
    assert look.is_over()
    with pytest.raises(StockUnavailable, match="the look is over"):
        await look.undelivered(SLOT, 0, 1)
    assert seam.calls == {"undelivered": 1}


def test_what_nothing_can_be_done_for_fills_no_list() -> None:
    listed = Listed(2)
    listed.add([_case(Outcome.WAITING)] * 100)
    assert not listed.is_full
    listed.add([_case(Outcome.PLANNED)])
    looked = listed.looked(more=False)
    assert [case.item.outcome for case in looked.cases] == [Outcome.PLANNED, Outcome.WAITING]
    assert looked.more, "the idle ones are more than are kept"
    listed.add([_case(Outcome.PLANNED)] * 2)
    assert listed.is_full


def _case(outcome: Outcome) -> Case:
    return Case(item=Item(outcome=outcome, why=""), act=Resume() if outcome is Outcome.PLANNED else None)
