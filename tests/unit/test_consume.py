"""The loop of a consumer: its broker may be away when it begins, and refuse what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from consumers.loop import consume
from service.adapters.memory.clock import ManualClock
from service.domain.errors import BrokerUnavailable
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
