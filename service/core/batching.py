"""Natural batching (design §3.1 step 2). While a batch is in flight the next one fills; without load a batch is one
candidate, which is RocketMQ's canonical flow.

What a batch costs is mostly the same for one candidate and for a hundred, so a lane is not taken as soon as it is free:
a batch starts beside others once as many wait as are in flight, and never for one alone. So few clients have small
batches side by side, and more clients larger ones, not more of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial

import msgspec

from service.domain.batch import Candidate
from service.domain.errors import Busy, DropgateError, OutcomeUnknown
from service.domain.reservation import Reservation
from service.ports.clock import Clock

RETRY_AFTER_S = 1
"""What a refused request is told: by then the queue has turned over several times."""


HOLD_S = 0.01
"""Longest that a free lane holds a request back for the sake of a larger batch: about as long as a batch takes, so that
one that is stuck delays nobody."""

BESIDE_MIN = 2
"""Requests that begin a batch beside others. One alone waits for a second, or for a batch in flight to end: at a tenth
of its peak rate a process that gave each its own batch would be busy with batches, and late with all of them."""

ENDS_MAX = 64
"""Batches of one segment, over its lanes, whose requests are answered and whose COMMIT or ROLLBACK is on its way: even
a broker that takes a second for each lets a segment sell 64 × 128 in it."""


class ReserveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation, new or (`replayed`) the same again."""

    reservation: Reservation
    replayed: bool


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    batch_max: int
    lanes: int
    queue_max: int
    queue_age_max_s: float
    reply_timeout_s: float
    ends_max: int = ENDS_MAX


@dataclass(eq=False, slots=True)
class Ticket:
    """One request in line: answered exactly once, by whichever step can say the most about it."""

    candidate: Candidate
    keyed: bool
    joined_at_s: float
    future: asyncio.Future[ReserveAnswer] = field(repr=False)

    def answer(self, reservation: Reservation, *, replayed: bool) -> None:
        if not self.future.done():
            self.future.set_result(ReserveAnswer(reservation=reservation, replayed=replayed))

    def refuse(self, error: DropgateError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # whoever asked may be gone: nobody's unheard answer is an error of ours


DecideBatch = Callable[[list[Ticket], Callable[[], None]], Coroutine[None, None, None]]
"""Decides one batch; calls the second argument when its candidates are answered, so that the next batch may start."""


class BatchQueue:
    """The requests of one segment: a bounded line, and a bounded number of batches in flight."""

    def __init__(self, attempt: DecideBatch, limits: BatchLimits, clock: Clock) -> None:
        self._attempt = attempt
        self._limits = limits
        self._clock = clock
        self._waiting: deque[Ticket] = deque()
        self._open = _OpenTickets(limits.reply_timeout_s)
        self._lanes_free = limits.lanes
        self._in_lanes = 0
        self._hold: asyncio.TimerHandle | None = None
        self._in_flight_max = limits.lanes + limits.ends_max
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Batches that have begun and not ended: answered ones too, until the broker has their verdict."""
        return len(self._tasks)

    def join(self, candidate: Candidate, *, keyed: bool) -> asyncio.Future[ReserveAnswer]:
        """Stand in line. Busy at once where the line is full: by count, or because its head is too old.

        OutcomeUnknown for who has no answer after `reply_timeout_s`. A future that is cancelled leaves the line, and
        changes nothing of a batch that has begun.
        """
        now_s = self._clock.monotonic_s()
        if self._is_full(now_s):
            raise Busy(RETRY_AFTER_S)
        future: asyncio.Future[ReserveAnswer] = asyncio.get_running_loop().create_future()
        ticket = Ticket(candidate=candidate, keyed=keyed, joined_at_s=now_s, future=future)
        self._open.add(ticket)
        self._waiting.append(ticket)
        self._start_batches()
        return future

    async def drain(self) -> None:
        """Wait until nothing waits and nothing is in flight. The caller sets the deadline."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def abandon(self) -> None:
        """Time is over: whoever still waits hears that the outcome is unknown. What is in flight goes on."""
        self._open.refuse_all()

    def _is_full(self, now_s: float) -> bool:
        if len(self._waiting) >= self._limits.queue_max:
            return True
        return bool(self._waiting) and now_s - self._waiting[0].joined_at_s > self._limits.queue_age_max_s

    def _start_batches(self) -> None:
        while self._lanes_free > 0 and self.in_flight < self._in_flight_max and self._waiting:
            if (held_s := self._held_s()) > 0:
                self._look_again(held_s)
                return
            tickets = self._take()
            if tickets:
                self._start(tickets)

    def _held_s(self) -> float:
        """How much longer the next batch waits to become larger."""
        enough = min(max(self._in_lanes, BESIDE_MIN), self._limits.batch_max)
        if not self._in_lanes or len(self._waiting) >= enough:
            return 0.0
        return self._waiting[0].joined_at_s + HOLD_S - self._clock.monotonic_s()

    def _look_again(self, after_s: float) -> None:
        if self._hold is None:
            self._hold = asyncio.get_running_loop().call_later(after_s, self._held_long_enough)

    def _held_long_enough(self) -> None:
        self._hold = None
        self._start_batches()

    def _take(self) -> list[Ticket]:
        """The next batch. A request that waited too long is refused, not served."""
        oldest_s = self._clock.monotonic_s() - self._limits.queue_age_max_s
        tickets: list[Ticket] = []
        while self._waiting and len(tickets) < self._limits.batch_max:
            ticket = self._waiting.popleft()
            if ticket.joined_at_s < oldest_s:
                ticket.refuse(Busy(RETRY_AFTER_S))
            elif not ticket.future.done():
                tickets.append(ticket)
        return tickets

    def _start(self, tickets: list[Ticket]) -> None:
        lane = _Lane(partial(self._lane_freed, len(tickets)))
        self._in_lanes += len(tickets)
        self._lanes_free -= 1
        task = asyncio.create_task(self._attempt(tickets, lane.free))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, tickets, lane))

    def _lane_freed(self, size: int) -> None:
        self._lanes_free += 1
        self._in_lanes -= size
        self._start_batches()

    def _ended(self, task: asyncio.Task[None], tickets: list[Ticket], lane: _Lane) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: what it left behind is for the check-back to find out, and its requests hear just that.
            asyncio.get_running_loop().call_exception_handler({"message": "batch attempt failed", "exception": error})
        for ticket in tickets:
            ticket.refuse(OutcomeUnknown(ticket.candidate.reservation_id))
        lane.free()
        self._start_batches()


SWEEP_AT = 4_096
"""Tickets: what is answered behind one that is not goes when there are so many, or twice as many as were left."""


class _OpenTickets:
    """Those without an answer, in the order of their coming; with one timer for all, as one a request is a tenth of
    what a request costs."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._tickets: deque[tuple[float, Ticket]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = SWEEP_AT

    def add(self, ticket: Ticket) -> None:
        loop = ticket.future.get_loop()
        self._tickets.append((loop.time() + self._timeout_s, ticket))
        self._forget_answered()
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._ring, loop)

    def refuse_all(self) -> None:
        for _, ticket in self._tickets:
            ticket.refuse(OutcomeUnknown(ticket.candidate.reservation_id))

    def _forget_answered(self) -> None:
        while self._tickets and self._tickets[0][1].future.done():
            self._tickets.popleft()
        if len(self._tickets) >= self._sweep_at:
            self._tickets = deque(it for it in self._tickets if not it[1].future.done())
            self._sweep_at = max(SWEEP_AT, 2 * len(self._tickets))

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now_s = loop.time()
        while self._tickets and (self._tickets[0][0] <= now_s or self._tickets[0][1].future.done()):
            _, ticket = self._tickets.popleft()
            ticket.refuse(OutcomeUnknown(ticket.candidate.reservation_id))
        if self._tickets:
            self._timer = loop.call_at(self._tickets[0][0], self._ring, loop)


class _Lane:
    """A place in flight, given back once."""

    def __init__(self, freed: Callable[[], None]) -> None:
        self._freed = freed
        self._taken = True

    def free(self) -> None:
        if self._taken:
            self._taken = False
            self._freed()
