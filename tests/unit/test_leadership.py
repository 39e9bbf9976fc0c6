"""Who believes to lead, when clocks jump and answers are lost (core/leadership.py)."""

from __future__ import annotations

from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.core.leadership import LEASE_TTL_MS, Leadership
from service.domain.errors import StoreUnavailable
from service.ports.orders import SaleStore

TTL_S = LEASE_TTL_MS / 1000


class SteppedClock(ManualClock):
    """Wall time may step; the monotonic clock knows nothing of it."""

    stepped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.stepped_ms


class LeaseRow:
    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.owner: str | None = None
        self.asked = 0
        self.slow_s = 0.0
        self.away = False
        self.answer_lost = False

    async def acquire_lease(self, name: str, owner: str, now_ms: int, ttl_ms: int) -> bool:
        self.asked += 1
        await self.clock.advance(self.slow_s)
        if self.away:
            raise StoreUnavailable("sql")
        self.owner = self.owner or owner
        if self.answer_lost:
            raise StoreUnavailable("sql")
        return self.owner == owner

    async def release_lease(self, name: str, owner: str) -> None:
        if self.away:
            raise StoreUnavailable("sql")
        if self.owner == owner:
            self.owner = None


@pytest.fixture
def row() -> LeaseRow:
    return LeaseRow(SteppedClock())


@pytest.fixture
def leadership(row: LeaseRow) -> Leadership:
    return Leadership(cast(SaleStore, row), row.clock, "me")


async def test_it_is_renewed_at_a_third_of_its_life(row: LeaseRow, leadership: Leadership) -> None:
    for _ in range(3):
        assert await leadership.hold()
        await row.clock.advance(TTL_S / 3 - 0.1)
        assert await leadership.hold()
        await row.clock.advance(0.1)
    assert row.asked == 3


async def test_a_wall_clock_that_steps_back_is_no_reason_to_believe(row: LeaseRow, leadership: Leadership) -> None:
    assert await leadership.hold()
    row.clock.stepped_ms = -3_600_000
    row.owner = "another"
    await row.clock.advance(TTL_S / 3)
    assert not await leadership.hold()


async def test_an_answer_that_took_as_long_as_the_lease_lives_is_worth_nothing(
    row: LeaseRow, leadership: Leadership
) -> None:
    row.slow_s = TTL_S
    assert not await leadership.hold()
    row.slow_s = 0
    assert await leadership.hold()


async def test_a_store_that_is_away_leads_nobody(row: LeaseRow, leadership: Leadership) -> None:
    assert await leadership.hold()
    row.away = True
    for _ in range(3):
        await row.clock.advance(TTL_S / 3)
        with pytest.raises(StoreUnavailable):
            await leadership.hold()


async def test_a_stop_releases_also_what_was_taken_without_an_answer(row: LeaseRow, leadership: Leadership) -> None:
    row.answer_lost = True
    with pytest.raises(StoreUnavailable):
        await leadership.hold()
    assert row.owner == "me"
    await leadership.release()
    assert row.owner is None


async def test_a_stop_leaves_the_lease_of_another_alone_and_does_not_fail_without_a_store(
    row: LeaseRow, leadership: Leadership
) -> None:
    row.owner = "another"
    assert not await leadership.hold()
    await leadership.release()
    assert row.owner == "another"
    row.owner = None
    assert await leadership.hold()
    row.away = True
    await leadership.release()
