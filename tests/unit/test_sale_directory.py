"""When a process shuts its own gate for a loss that it met, and when it opens it again (design §3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.core.directory import SaleDirectory
from service.domain.errors import StoreUnavailable, Unavailable
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

    async def sales(self) -> Sequence[Sale]:
        return [self.sale]

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
    reading = asyncio.Event()
    reads = fleet.row.sales

    async def slow_read() -> Sequence[Sale]:
        seen = await reads()
        await reading.wait()
        return seen

    fleet.row.sales = slow_read  # type: ignore[method-assign]
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
