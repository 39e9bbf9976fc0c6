"""The loop of a consumer: its broker may be away when it begins, and refuse what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from consumers.loop import consume
from service.adapters.memory.clock import ManualClock
from service.domain.errors import BrokerUnavailable, StoreUnavailable
from service.ports.messaging import Delivery, Done, Outcome
from tests.fixtures.stage_tools import counted

FAILURES = "dropgate_loop_failures_total"
LAST_SUCCESS = "dropgate_loop_last_success_timestamp_seconds"


class OneMessage:
    """A consumer with one message, whose settling is refused."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.stop = stop
        self.closed = False

    async def receive(self, max_messages: int, wait_s: float) -> Sequence[Delivery]:
        self.stop.set()
        return [Delivery(message_id="m", topic="t", key="k", body=b"", attempt=1, born_at_ms=0, receipt=0)]

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        raise BrokerUnavailable("broker", "no answer")

    async def close(self) -> None:
        self.closed = True


async def process(deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
    return [(delivery, Done()) for delivery in deliveries]


async def test_a_message_that_cannot_be_settled_comes_again_and_ends_nothing() -> None:
    consumer = OneMessage(stop := asyncio.Event())

    async def open_() -> OneMessage:
        return consumer

    await consume("group", open_, process, max_messages=1, stop=stop, clock=ManualClock())
    assert consumer.closed


async def test_what_a_receive_took_to_be_done_is_measured_where_it_was_done() -> None:
    async def fails(deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        raise StoreUnavailable("sql")

    for name, work, done in (("measured", process, 1), ("measured-not", fails, 0)):
        consumer = OneMessage(stop := asyncio.Event())

        async def open_(it: OneMessage = consumer) -> OneMessage:
            return it

        await consume(name, open_, work, max_messages=1, stop=stop, clock=ManualClock())
        assert counted("dropgate_consume_seconds_count", loop=name) == done


async def test_a_consumer_that_has_no_broker_yet_tries_until_it_has_one_and_shows_meanwhile_that_it_does_not() -> None:
    """F45: neither a silent hang nor an end; the age of its last success, which an alarm looks at, counts from its
    start."""
    stop, opened, clock = asyncio.Event(), asyncio.Event(), ManualClock()
    tries = 0

    async def open_() -> OneMessage:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise BrokerUnavailable("broker", "no connection within 8 s")
        return OneMessage(stop)

    failed = counted(FAILURES, loop="slow-broker")
    began_s = time.time()
    loop = asyncio.create_task(
        consume("slow-broker", open_, process, max_messages=1, stop=stop, clock=clock, opened=opened)
    )
    await asyncio.sleep(0)
    assert counted(LAST_SUCCESS, loop="slow-broker") >= began_s
    while not loop.done():
        assert tries == 3 or not opened.is_set()
        await clock.advance(1.0)
        await asyncio.sleep(0)
    await loop
    assert opened.is_set()
    assert counted(FAILURES, loop="slow-broker") - failed == 2


async def test_a_stop_does_not_wait_for_a_broker_that_says_nothing() -> None:
    stop = asyncio.Event()

    async def open_() -> OneMessage:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(5):
        loop = asyncio.create_task(consume("group", open_, process, max_messages=1, stop=stop, clock=ManualClock()))
        await asyncio.sleep(0)
        stop.set()
        await loop


class ManyMessages(OneMessage):
    """There is always another; settled is what was settled."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__(stop)
        self.received = 0
        self.settled = 0

    async def receive(self, max_messages: int, wait_s: float) -> Sequence[Delivery]:
        await asyncio.sleep(0)
        self.received += 1
        return [Delivery(message_id="m", topic="t", key="k", body=b"", attempt=1, born_at_ms=0, receipt=0)]

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        self.settled += 1


async def test_work_that_fails_is_a_failure_of_the_loop_which_pauses_ever_longer_and_shows_no_success() -> None:
    consumer, clock = ManyMessages(stop := asyncio.Event()), ManualClock()

    async def open_() -> ManyMessages:
        return consumer

    async def refused(_: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        raise BrokerUnavailable("sql", "a column")

    loop = asyncio.create_task(consume("refused", open_, refused, max_messages=1, stop=stop, clock=clock))
    for _ in range(200):
        await clock.advance(0.1)
        await asyncio.sleep(0)
    assert 5 <= counted(FAILURES, loop="refused") <= consumer.received <= 20
    stop.set()
    await clock.advance(10)
    async with asyncio.timeout(5):
        await loop
    assert consumer.settled == 0


async def test_two_receives_are_in_work_and_a_stop_waits_for_both_and_takes_no_third() -> None:
    consumer, going = ManyMessages(stop := asyncio.Event()), asyncio.Event()

    async def open_() -> ManyMessages:
        return consumer

    async def slow(deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        await going.wait()
        return [(delivery, Done()) for delivery in deliveries]

    loop = asyncio.create_task(consume("slow", open_, slow, max_messages=1, stop=stop, clock=ManualClock()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert consumer.received == 2
    stop.set()
    going.set()
    async with asyncio.timeout(5):
        await loop
    assert (consumer.received, consumer.settled) == (2, 2)


async def test_what_nobody_has_foreseen_ends_the_loop_also_beside_what_is_tried_again() -> None:
    consumer, at_once = ManyMessages(stop := asyncio.Event()), asyncio.Barrier(2)
    numbers = iter(range(100))

    async def open_() -> ManyMessages:
        return consumer

    async def both(_: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        number = next(numbers)
        await at_once.wait()
        raise ZeroDivisionError if number % 2 else BrokerUnavailable("sql", "no answer")

    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5):
            await consume("both", open_, both, max_messages=1, stop=stop, clock=ManualClock())


async def test_a_cancelled_loop_leaves_no_work_behind_also_while_it_stops() -> None:
    consumer, cancelled = ManyMessages(stop := asyncio.Event()), 0

    async def open_() -> ManyMessages:
        return consumer

    async def endless(_: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert not consumer.closed
            cancelled += 1
            raise
        return []

    loop = asyncio.create_task(consume("endless", open_, endless, max_messages=1, stop=stop, clock=ManualClock()))
    for _ in range(50):
        await asyncio.sleep(0)
    stop.set()
    for _ in range(10):
        await asyncio.sleep(0)
    loop.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([loop])
    assert (cancelled, consumer.closed) == (2, True)
