"""When a process shuts its own gate for a loss that it met, and when it opens it again (design §3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.core.directory import LOOK_AGAIN_S, SaleDirectory
from service.domain.errors import NotFound, StoreUnavailable, Unavailable
from service.domain.ids import SaleId
from service.domain.sale import Authority, Sale, SaleStatus, ServerIds
from service.ports.orders import SaleStore
from tests.fixtures.domain import a_sale

FOUND = ServerIds(run_id="another", replid="another")
SALE = a_sale(status=SaleStatus.OPEN)


class Row:
    """A sale store with one row; `away` and `hangs` are what it does with a report."""

    def __init__(self) -> None:
        self.sale = SALE
        self.reports = 0
        self.away = False
        self.hangs = False
        self.reads = 0
        self.reads_fail = False
        self.held = asyncio.Event()
        self._gate: asyncio.Event | None = None

    def hold_reads(self) -> asyncio.Event:
        """Each read sees the row, and answers when this is set."""
        self._gate = asyncio.Event()
        return self._gate

    def release_next(self) -> None:
        """Reads that begin from now on answer at once."""
        self._gate = None

    async def view(self) -> Sequence[Sale]:
        self.reads += 1
        if self.reads_fail:
            raise StoreUnavailable("sql")
        seen = [self.sale]
        if self._gate is not None:
            self.held.set()
            await self._gate.wait()
        return seen

    async def report_lost(self, *_: object) -> bool:
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise StoreUnavailable("sql")
        self.reports += 1
        self.sale = replace(self.sale, lost=FOUND)
        return True


class Fleet:
    """One process, and what it sees."""

    def __init__(self) -> None:
        self.row = Row()
        self.clock = ManualClock()
        self.directory = SaleDirectory(cast(SaleStore, self.row), self.clock)

    async def look(self) -> None:
        await self.clock.advance(0.5)
        await self.directory.refresh()

    async def is_reading(self) -> None:
        """A read that is held has seen the row."""
        async with asyncio.timeout(5):
            await self.row.held.wait()

    def sells(self) -> bool:
        try:
            self.directory.selling(SALE.id)
        except Unavailable:
            return False
        return True


@pytest.fixture
async def fleet() -> Fleet:
    fleet = Fleet()
    await fleet.look()
    return fleet


async def test_a_loss_is_reported_once_and_shuts_the_gate_at_once(fleet: Fleet) -> None:
    assert fleet.sells()
    for _ in range(3):
        await fleet.directory.report_lost(SALE, FOUND)
    assert not fleet.sells()
    assert fleet.row.reports == 1


async def test_the_gate_stays_shut_until_the_epoch_is_over(fleet: Fleet) -> None:
    await fleet.directory.report_lost(SALE, FOUND)
    await fleet.look()
    await fleet.look()
    assert not fleet.sells()
    fleet.row.sale = replace(SALE, epoch=SALE.epoch + 2)
    await fleet.look()
    assert fleet.sells()


async def test_a_report_that_the_leader_dismissed_opens_the_gate_again(fleet: Fleet) -> None:
    """Else a process whose way to Redis was wrong for a moment would sell nothing for the rest of the epoch."""
    await fleet.directory.report_lost(SALE, FOUND)
    fleet.row.sale = SALE
    await fleet.look()
    assert fleet.sells()
    await fleet.directory.report_lost(SALE, FOUND)
    assert fleet.row.reports == 2


async def test_a_read_that_began_before_the_report_opens_nothing(fleet: Fleet) -> None:
    reading = fleet.row.hold_reads()
    refresh = asyncio.create_task(fleet.directory.refresh())
    await fleet.clock.advance(0.1)
    await fleet.directory.report_lost(SALE, FOUND)
    reading.set()
    await refresh
    assert not fleet.sells()


async def test_a_slot_that_is_being_loaded_is_not_lost(fleet: Fleet) -> None:
    loading = replace(SALE, authority=Authority.LOADING)
    await fleet.directory.report_lost(loading, FOUND)
    assert fleet.row.reports == 0
    assert fleet.sells()


@pytest.mark.parametrize("trouble", ["away", "hangs"])
async def test_a_report_that_reached_nobody_leaves_the_gate_open_to_be_made_again(fleet: Fleet, trouble: str) -> None:
    setattr(fleet.row, trouble, True)
    report = asyncio.create_task(fleet.directory.report_lost(SALE, FOUND))
    await asyncio.sleep(0)
    report.cancel()
    await asyncio.wait([report])
    assert fleet.sells()
    setattr(fleet.row, trouble, False)
    await fleet.directory.report_lost(SALE, FOUND)
    assert fleet.row.reports == 1


# --- a sale that is younger than the view -----------------------------------------------------------------------------


async def test_a_sale_that_is_younger_than_the_view_is_found_by_looking_again(fleet: Fleet) -> None:
    fleet.row.sale = replace(SALE, id=SaleId("younger"))
    with pytest.raises(NotFound):
        fleet.directory.selling(SaleId("younger"))
    await fleet.directory.look_again()
    assert fleet.directory.selling(SaleId("younger")).id == "younger"


async def test_many_who_ask_for_what_nobody_knows_share_ten_reads_a_second(fleet: Fleet) -> None:
    reads_before = fleet.row.reads
    for _ in range(5):
        asking = asyncio.gather(*(fleet.directory.look_again() for _ in range(100)))
        await fleet.clock.advance(LOOK_AGAIN_S)
        await asking
    assert fleet.row.reads - reads_before == 5


async def test_who_asks_while_a_look_is_under_way_gets_one_that_began_later(fleet: Fleet) -> None:
    reading = fleet.row.hold_reads()
    first = asyncio.create_task(fleet.directory.look_again())
    await fleet.is_reading()
    fleet.row.sale = replace(SALE, id=SaleId("younger"))
    second = asyncio.create_task(fleet.directory.look_again())
    reading.set()
    await first
    with pytest.raises(NotFound):
        fleet.directory.selling(SaleId("younger"))
    await fleet.clock.advance(LOOK_AGAIN_S)
    await second
    assert fleet.directory.selling(SaleId("younger")).id == "younger"


async def test_a_read_that_was_overtaken_changes_nothing(fleet: Fleet) -> None:
    reading = fleet.row.hold_reads()
    overtaken = asyncio.create_task(fleet.directory.refresh())
    await fleet.is_reading()
    await fleet.clock.advance(0.01)
    fleet.row.release_next()
    fleet.row.sale = replace(SALE, epoch=SALE.epoch + 2)
    await fleet.directory.refresh()
    reading.set()
    await overtaken
    assert fleet.directory.selling(SALE.id).epoch == SALE.epoch + 2


async def test_a_look_that_fails_is_told_to_those_who_asked_and_tried_again_by_the_next(fleet: Fleet) -> None:
    fleet.row.reads_fail = True
    with pytest.raises(StoreUnavailable):
        await fleet.directory.look_again()
    fleet.row.reads_fail = False
    again = asyncio.create_task(fleet.directory.look_again())
    await fleet.clock.advance(LOOK_AGAIN_S)
    await again


async def test_who_goes_away_ends_no_look_of_others(fleet: Fleet) -> None:
    reading = fleet.row.hold_reads()
    looks = [asyncio.create_task(fleet.directory.look_again()) for _ in range(2)]
    await fleet.is_reading()
    looks[0].cancel()
    reading.set()
    await looks[1]
    assert looks[0].cancelled()
