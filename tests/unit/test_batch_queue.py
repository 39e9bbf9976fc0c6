"""The line of requests: lanes for those who wait for an answer, a bound for batches that are answered and not over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from consumers import order as order_consumer
from service.adapters.system_clock import SystemClock
from service.core import after_commit
from service.core.batching import BatchLimits, BatchQueue, Ticket
from service.core.fates import Ended, Failed, Fate, Fates, Waiting
from service.domain.errors import OutcomeUnknown
from service.domain.ids import BatchId
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


def test_what_follows_the_commit_is_over_long_before_its_messages_come_again() -> None:
    assert after_commit.AFTER_COMMIT_S * 5 < order_consumer.INVISIBLE_S
