"""The line of requests: lanes for those who wait for an answer, a bound for batches that are answered and not over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from consumers import order as order_consumer
from consumers import payment_timeout
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.sql.database import DatabaseOptions
from service.adapters.sql.transactions import LEFT_ALONE_S
from service.adapters.system_clock import SystemClock
from service.core import after_commit, batching, expiry, order_intake
from service.core.batching import BatchLimits, BatchQueue, ReserveAnswer, Ticket
from service.core.fates import Ended, Failed, Fate, Fates, Waiting
from service.core.pace import PART_S
from service.domain.errors import OutcomeUnknown
from service.domain.ids import BatchId
from tests.fixtures.stage_tools import until
from tests.fixtures.stock import candidate, new_slot

SLOT = new_slot()
LIMITS = BatchLimits(batch_max=1, lanes=2, queue_max=100, queue_age_max_s=60, reply_timeout_s=60, ends_max=3)


class Broker:
    """Answers each batch at once, and ends it when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.end = asyncio.Event()

    async def attempt(self, tickets: list[Ticket], answered: Callable[[], None]) -> None:
        self.begun += 1
        for ticket in tickets:
            ticket.refuse(OutcomeUnknown())
        answered()
        await self.end.wait()


async def test_batches_that_wait_for_the_brokers_end_are_bounded_and_drained() -> None:
    broker = Broker()
    queue = BatchQueue(broker.attempt, LIMITS, SystemClock())
    futures = [queue.join(candidate(SLOT, f"b-{number}"), keyed=True) for number in range(20)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert broker.begun == queue.in_flight == LIMITS.lanes + LIMITS.ends_max
    draining = asyncio.create_task(queue.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    broker.end.set()
    await draining
    assert broker.begun == 20
    for future in futures:
        with pytest.raises(OutcomeUnknown):
            await future


class Lanes:
    """Batches that are in flight until they are let go."""

    def __init__(self, **limits: Any) -> None:
        limits = {
            "batch_max": 128,
            "lanes": 4,
            "queue_max": 1_000,
            "queue_age_max_s": 60,
            "reply_timeout_s": 60,
            **limits,
        }
        self.queue = BatchQueue(self._attempt, BatchLimits(**limits), SystemClock())
        self.sizes: list[int] = []
        self._free: list[asyncio.Event] = []
        self._numbers = count()

    async def _attempt(self, tickets: list[Ticket], answered: Callable[[], None]) -> None:
        self.sizes.append(len(tickets))
        self._free.append(free := asyncio.Event())
        await free.wait()

    async def join(self, many: int) -> list[asyncio.Future[ReserveAnswer]]:
        found = [self.queue.join(candidate(SLOT, f"b-{next(self._numbers)}"), keyed=True) for _ in range(many)]
        await asyncio.sleep(0)
        return found

    async def let_go(self, batch: int) -> None:
        self._free[batch].set()
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for free in self._free:
            free.set()


@pytest.fixture
def held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "HOLD_S", 60.0)


@pytest.mark.usefixtures("held_for_ever")
async def test_a_batch_starts_beside_others_once_as_many_wait_as_are_in_flight() -> None:
    lanes = Lanes(lanes=2)
    await lanes.join(1 + 2 + 20)
    assert lanes.sizes == [1, 2]
    await lanes.let_go(0)
    assert lanes.sizes == [1, 2, 20]
    await lanes.let_go(1)
    await lanes.join(19)
    assert lanes.sizes == [1, 2, 20]
    await lanes.join(1)
    assert lanes.sizes == [1, 2, 20, 20]
    await lanes.end()


@pytest.mark.usefixtures("held_for_ever")
async def test_one_alone_waits_for_a_second_or_for_a_batch_to_end() -> None:
    lanes = Lanes(lanes=4)
    await lanes.join(1 + 1)
    assert lanes.sizes == [1]
    await lanes.join(1)
    assert lanes.sizes == [1, 2]
    await lanes.join(1)
    await lanes.let_go(0)
    assert lanes.sizes == [1, 2]
    await lanes.let_go(1)
    assert lanes.sizes == [1, 2, 1]
    await lanes.end()


@pytest.mark.usefixtures("held_for_ever")
async def test_a_full_batch_waits_for_nobody() -> None:
    lanes = Lanes(lanes=3, batch_max=8)
    await lanes.join(1 + 2 + 3 + 24)
    for batch in range(3):
        await lanes.let_go(batch)
    assert lanes.sizes == [1, 2, 3, 8, 8, 8]
    await lanes.end()


async def test_with_nothing_in_flight_nobody_waits() -> None:
    lanes = Lanes(lanes=4)
    for number in range(3):
        await lanes.join(1)
        assert lanes.sizes == [1] * (number + 1)
        await lanes.let_go(number)
    await lanes.end()


async def test_nobody_is_held_back_for_long_by_a_batch_that_is_stuck() -> None:
    lanes = Lanes(lanes=2)
    await lanes.join(1 + 2 + 20)
    await lanes.let_go(0)
    await lanes.let_go(1)
    await lanes.join(3)
    assert lanes.sizes == [1, 2, 20]

    async def are_taken() -> bool:
        return lanes.sizes == [1, 2, 20, 3]

    await until(are_taken, "the three are taken")
    await lanes.end()


async def test_who_has_no_answer_in_time_hears_that_the_outcome_is_unknown_and_no_one_else_does() -> None:
    lanes = Lanes(lanes=1, reply_timeout_s=0.05)
    (first,) = await lanes.join(1)
    with pytest.raises(OutcomeUnknown):
        await first
    lanes = Lanes(lanes=1, reply_timeout_s=60)
    (patient,) = await lanes.join(1)
    assert not patient.done()
    lanes.queue.abandon()
    with pytest.raises(OutcomeUnknown):
        await patient
    await lanes.end()


async def test_who_goes_away_leaves_the_line_and_takes_nobody_along() -> None:
    lanes = Lanes(lanes=1)
    _, second, third = await lanes.join(3)
    second.cancel()
    await lanes.let_go(0)
    assert lanes.sizes == [1, 1]
    assert not third.done()
    await lanes.end()


async def test_what_is_answered_behind_one_that_is_not_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "SWEEP_AT", 16)
    open_tickets = batching._OpenTickets(60)
    loop = asyncio.get_running_loop()
    for number in range(1_000):
        future: asyncio.Future[ReserveAnswer] = loop.create_future()
        open_tickets.add(Ticket(candidate=candidate(SLOT, f"b-{number}"), keyed=True, joined_at_s=0.0, future=future))
        if number > 0:
            future.cancel()
    assert len(open_tickets._tickets) <= 2 * 16
    open_tickets.refuse_all()


def test_of_a_batch_in_parts_the_gravest_fate_counts() -> None:
    a, b = BatchId("a"), BatchId("b")
    failed, waiting = Failed(why="a column", patience_ms=1), Waiting(why="the authority changed")
    orders: tuple[list[Fate], ...] = (
        [Ended(), waiting, failed],
        [failed, waiting, Ended()],
        [waiting, failed, Ended()],
    )
    for order in orders:
        fates = Fates()
        for fate in order:
            fates.add([a], fate)
        assert fates[a] == failed
    fates = Fates({a: waiting})
    fates.add([a, b], Ended())
    assert fates[a] == waiting
    assert fates.ended() == {b}


def test_a_receive_is_over_before_its_messages_come_again() -> None:
    """At most: a transaction that uses all its time, a look, and what then is smaller (COMMIT_S); what a thread of
    SQLite needs to end; what follows; and a margin for messages that were held for a while already."""
    assert DatabaseOptions().transaction_timeout_s + order_intake.LOOK_S + PART_S <= order_intake.COMMIT_S
    ends_s = order_intake.COMMIT_S + LEFT_ALONE_S + after_commit.AFTER_COMMIT_S
    assert ends_s + GrpcSettings.stale_margin_s < order_consumer.INVISIBLE_S
    assert expiry.PROCESS_S + LEFT_ALONE_S + GrpcSettings.stale_margin_s < payment_timeout.INVISIBLE_S
