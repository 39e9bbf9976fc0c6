"""The two shapes of a background loop: one that takes turns, one that consumes. Both are bounded, watched and
stoppable.

What Dropgate raises on purpose is logged, counted and tried again: a store that is away comes back, and the one row
that SQL refuses would be met again by the next process, while everything else waits. Only what says that this process
cannot do its work as it was set up, and what nobody has foreseen, ends it (its supervisor starts a new one): a loop
that is dead and silent is the worst of all states.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeVar, assert_never

from service.domain.errors import CannotStart, DropgateError, InDoubt, SettingRefused
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import error as log_error
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.messaging import Consumer, Dead, Delivery, Done, Outcome, RetryAfter

BACKOFF_MAX_S = 5.0
"""Longest pause after failing turns: recovery is then noticed within this."""
RECEIVE_WAIT_S = 1.0
"""How long a receive waits for the first message; a stop is noticed within this."""

SIDE_BY_SIDE = 2
"""Receives in work at a time: while one's transaction waits for the database, the next is read and prepared, and the
one before is acknowledged. Of one sale, transactions wait for each other all the same."""

T = TypeVar("T")
Turn = Callable[[], Awaitable[object]]
Open = Callable[[], Awaitable[Consumer]]
Process = Callable[[Sequence[Delivery]], Awaitable[Sequence[tuple[Delivery, Outcome]]]]


async def take_turns(
    name: str, turn: Turn, *, interval_s: float, stop: asyncio.Event, clock: Clock, again_if_full: int | None = None
) -> None:
    """Turn after turn until `stop`. A turn that did `again_if_full` things or more is followed by the next at once."""
    failures = 0
    # An alarm is made of this metric's age: a loop that never succeeds must have one too.
    metrics.LOOP_SUCCESS.labels(name).set_to_current_time()
    while not stop.is_set():
        done = await _one_turn(name, turn)
        failures = 0 if done is not None else failures + 1
        if done is not None and again_if_full is not None and done >= again_if_full:
            continue
        pause_s = min(BACKOFF_MAX_S, interval_s * 2**failures) if failures else interval_s
        await _pause(pause_s, stop, clock)


async def _one_turn(name: str, turn: Turn) -> int | None:
    """How much the turn did, or None: it failed."""
    began_s = time.monotonic()
    try:
        done = await turn()
    except (CannotStart, SettingRefused):
        raise
    except DropgateError as error:
        metrics.LOOP_FAILURES.labels(name).inc()
        say = warn if isinstance(error, InDoubt) else log_error
        say(Action.LOOP_FAILED, loop=name, error=str(error))
        return None
    metrics.LOOP_SECONDS.labels(name).observe(time.monotonic() - began_s)
    metrics.LOOP_SUCCESS.labels(name).set_to_current_time()
    return done if isinstance(done, int) else 0


async def _pause(seconds: float, stop: asyncio.Event, clock: Clock) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({stopping, sleeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        sleeping.cancel()


async def consume(
    group: str,
    open_: Open,
    process: Process,
    *,
    max_messages: int,
    stop: asyncio.Event,
    clock: Clock,
    opened: asyncio.Event | None = None,
) -> None:
    """Open the consumer; then receive, process, settle, until `stop`; what is held then is settled before this returns.
    SIDE_BY_SIDE receives are in work at a time, so that what is processed keeps no order.

    A broker that is away, or has no such topic yet, is tried again like any other failure. `opened` is set once."""
    consumer: Consumer | None = None
    at_work = _AtWork()

    async def turn() -> int:
        nonlocal consumer
        consumer = consumer or await _opened(group, open_, stop, opened)
        await at_work.has_room()
        if consumer is None or stop.is_set():
            return 0
        deliveries = await consumer.receive(max_messages, RECEIVE_WAIT_S)
        if deliveries:
            await at_work.begin(_work(group, consumer, process, deliveries))
        return len(deliveries)

    try:
        # A receive waits by itself: the pause only keeps a broken one from spinning.
        await take_turns(group, turn, interval_s=0.02, stop=stop, clock=clock, again_if_full=1)
    except asyncio.CancelledError:
        at_work.cancel()
        raise
    finally:
        try:
            await _one_turn(group, at_work.ends)
        finally:
            if consumer is not None:
                await consumer.close()


async def _opened(group: str, open_: Open, stop: asyncio.Event, opened: asyncio.Event | None) -> Consumer | None:
    """None: `stop` came first."""
    consumer = await _unless_stopped(open_(), stop)
    if consumer is not None:
        log(Action.STARTED, loop=group)
        if opened is not None:
            opened.set()
    return consumer


class _AtWork:
    """What is processed and settled beside the loop. An error of it is one of the loop's next turn; after one it is
    worked on inside the turn, until that succeeds, so that a loop that fails pauses and looks like one that fails."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed = False

    async def begin(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.create_task(work))
        if self._failed:
            await self.ends()
            self._failed = False

    async def has_room(self) -> None:
        if len(self._tasks) >= SIDE_BY_SIDE:
            await self._waited(asyncio.FIRST_COMPLETED)
        self._take_done()

    async def ends(self) -> None:
        if self._tasks:
            await self._waited(asyncio.ALL_COMPLETED)
        self._take_done()

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _waited(self, until: str) -> None:
        """A cancellation meanwhile is one of the work, too, which ends before this does."""
        try:
            await asyncio.wait(self._tasks, return_when=until)
        except asyncio.CancelledError:
            self.cancel()
            await asyncio.wait(self._tasks)
            raise

    def _take_done(self) -> None:
        done = {task for task in self._tasks if task.done()}
        self._tasks -= done
        errors = [error for task in done if not task.cancelled() and (error := task.exception()) is not None]
        if errors:
            self._failed = True
            # Of two, the one that ends the process: the other is tried again anyway.
            raise min(errors, key=_is_tried_again)


def _is_tried_again(error: BaseException) -> bool:
    return isinstance(error, DropgateError) and not isinstance(error, (CannotStart, SettingRefused))


async def _work(group: str, consumer: Consumer, process: Process, deliveries: Sequence[Delivery]) -> None:
    began_s = time.monotonic()
    settled = await process(deliveries)
    await asyncio.gather(*[_settle(group, consumer, delivery, outcome) for delivery, outcome in settled])
    metrics.CONSUME_SECONDS.labels(group).observe(time.monotonic() - began_s)


async def _unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """None: `stop` came first, and the work was cancelled."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def _settle(group: str, consumer: Consumer, delivery: Delivery, outcome: Outcome) -> None:
    metrics.MESSAGES.labels(group, _name(outcome)).inc()
    if isinstance(outcome, Dead):
        metrics.DEAD.labels(group).inc()
    try:
        await consumer.settle(delivery, outcome)
    except DropgateError as error:
        # It comes again, and is met by its rows.
        warn(Action.LOOP_FAILED, loop=group, message_id=delivery.message_id, error=str(error))


def _name(outcome: Outcome) -> str:
    match outcome:
        case Done():
            return "done"
        case RetryAfter():
            return "retry"
        case Dead():
            return "dead"
        case unreachable:
            assert_never(unreachable)
