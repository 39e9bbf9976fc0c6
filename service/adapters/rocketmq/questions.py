"""Check-backs, answered on our event loop: many at a time, each with a deadline, and no flood becomes our memory.

A question without an answer is none lost: the broker asks again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from service.domain.check_back import Verdict
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import CheckBack, CheckRequest

Answer = Callable[[Verdict], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class QuestionBounds:
    """Part of a transport's settings."""

    check_deadline_s: float = 5.0
    """A check-back without an answer by then is UNKNOWN: the broker asks again. The gRPC proxy remembers a question for
    30 s; an answer that comes later is void."""

    check_age_max_s: float = 20.0
    """A question that has waited this long for its turn is not asked any more: it would be answered in vain."""

    checks_in_flight_max: int = 32
    """Questions open at once: enough that a few slow ones do not hold up the others, few enough that the stores behind
    the answers are not flooded after an outage."""

    checks_waiting_max: int = 10_000
    """Beyond it questions are dropped, to be asked again: a flood must not become our memory."""

    close_timeout_s: float = 2.5
    """Each of the three steps of `close`: consumers, what is under way, clients. Together less than the 10 s that a
    process has to stop. As a rule it is milliseconds."""

    def __post_init__(self) -> None:
        """ValueError says what a person has to change."""
        if self.check_deadline_s >= self.check_age_max_s:
            raise ValueError("check_deadline_s must be below check_age_max_s")
        if self.checks_in_flight_max < 1:
            raise ValueError("checks_in_flight_max must be at least 1")


class Questions:
    def __init__(self, check_back: CheckBack, bounds: QuestionBounds) -> None:
        self.check_back = check_back
        self._bounds = bounds
        self._room = asyncio.Semaphore(bounds.checks_in_flight_max)
        self._open: set[asyncio.Task[None]] = set()

    def ask(self, request: CheckRequest, answer: Answer) -> None:
        """On our event loop. `answer` is told the verdict, UNKNOWN too, and raises nothing."""
        if len(self._open) >= self._bounds.checks_waiting_max:
            return
        came_s = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._answer(request, answer, came_s), name="check-back")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Let the open questions be answered: each has its deadline, and all of them have ours."""
        if self._open:
            await asyncio.wait(self._open, timeout=self._bounds.close_timeout_s)
        for task in self._open:
            task.cancel()

    async def _answer(self, request: CheckRequest, answer: Answer, came_s: float) -> None:
        async with self._room:
            if asyncio.get_running_loop().time() - came_s > self._bounds.check_age_max_s:
                return
            await answer(await self._verdict(request))

    async def _verdict(self, request: CheckRequest) -> Verdict:
        try:
            async with asyncio.timeout(self._bounds.check_deadline_s):
                return await self.check_back(request)
        # The one edge where foreign code's exceptions end (F10, F17): one bad question must neither stop the others nor
        # hide them, and what cannot be answered is UNKNOWN.
        except Exception as error:  # noqa: BLE001
            warn(
                Action.LOOP_FAILED,
                loop="check-back",
                topic=request.topic,
                message_id=request.message_id,
                check=request.check,
                why=repr(error),
            )
            return Verdict.UNKNOWN
