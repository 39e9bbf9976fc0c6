"""One item's trouble is its own: the items of a turn side by side, each with a deadline; one that failed rests a while.

Else the one row that SQL refuses, or the one sale whose Redis is silent, would hold up or end what all others need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from service.domain.errors import DropgateError, InDoubt, Unavailable
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import error as log_error
from service.observability.log import warn
from service.ports.clock import Clock

AT_ONCE = 8
"""Items side by side: a silent store then costs its time-out once in eight, and the pools have room for others."""
DEADLINE_S = 30.0
"""Of one item: longer than any transaction with its retries and the Redis calls after it."""
REST_S = 1.0
REST_IN_DOUBT_MAX_S = 5.0
"""A store that is back is noticed within this."""
REST_MAX_S = 60.0
"""What running it again cannot help (Permanent) is looked at once a minute: a person has to act."""
RESTING_MAX = 500
"""Keys remembered. With more than that in trouble it is no single item's trouble."""

T = TypeVar("T")


@dataclass(kw_only=True)
class _Rest:
    failures: int
    until_s: float


class Apart:
    """`loop` names it in logs and metrics. One instance lives as long as its loop: it remembers who failed."""

    def __init__(self, loop: str, clock: Clock, *, at_once: int = AT_ONCE, deadline_s: float = DEADLINE_S) -> None:
        self._loop = loop
        self._clock = clock
        self._at_once = asyncio.Semaphore(at_once)
        self._deadline_s = deadline_s
        self._rests: dict[Hashable, _Rest] = {}

    def resting(self) -> frozenset[Hashable]:
        """Keys to be left alone now. A bounded query that leaves them out, or adds their number to its limit, cannot be
        filled by them."""
        now_s = self._clock.monotonic_s()
        return frozenset(key for key, rest in self._rests.items() if now_s < rest.until_s)

    async def each(self, items: Iterable[T], key: Callable[[T], Hashable], work: Callable[[T], Awaitable[int]]) -> int:
        """Work on every item that does not rest; what was done, in sum. Raises the first failure if all failed, and a
        bug at once."""
        resting = self.resting()
        due = [item for item in items if key(item) not in resting]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(key(item), item, work)) for item in due]
        outcomes = [task.result() for task in tasks]
        failures = [outcome for outcome in outcomes if isinstance(outcome, DropgateError)]
        if failures and len(failures) == len(outcomes):
            raise failures[0]
        return sum(outcome for outcome in outcomes if not isinstance(outcome, DropgateError))

    async def _one(self, key: Hashable, item: T, work: Callable[[T], Awaitable[int]]) -> int | DropgateError:
        async with self._at_once:
            try:
                async with asyncio.timeout(self._deadline_s):
                    done = await work(item)
            except DropgateError as error:
                return self._failed(key, error)
            except TimeoutError:
                return self._failed(key, Unavailable(self._loop, f"no end within {self._deadline_s:g} s"))
        self._rests.pop(key, None)
        return done

    def _failed(self, key: Hashable, error: DropgateError) -> DropgateError:
        note_failure(self._loop, key, error)
        known = self._rests.pop(key, None)
        failures = 1 if known is None else known.failures + 1
        rest_max_s = REST_IN_DOUBT_MAX_S if isinstance(error, InDoubt) else REST_MAX_S
        rest_s = min(rest_max_s, REST_S * 2 ** min(failures - 1, 10))
        self._rests[key] = _Rest(failures=failures, until_s=self._clock.monotonic_s() + rest_s)
        while len(self._rests) > RESTING_MAX:
            del self._rests[next(iter(self._rests))]
        return error


def note_failure(loop: str, key: object, error: DropgateError) -> None:
    """Loudly where a person has to look: what is not in doubt is our own fault, and comes again."""
    metrics.LOOP_ITEM_FAILURES.labels(loop).inc()
    say = warn if isinstance(error, InDoubt) else log_error
    say(Action.ITEM_FAILED, loop=loop, item=str(key), error=str(error))
