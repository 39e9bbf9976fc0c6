"""In which order what has arrived is handed out: as it came, or a FIFO topic's queues each one message at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from service.adapters.rocketmq.classic.child import Child
from service.adapters.rocketmq.classic.frames import Message


@dataclass(eq=False, kw_only=True)
class Held:
    """A message that the child's client holds. `repeats` counts how often it came again without a broker's help."""

    child: Child
    message: Message
    repeats: int = 0
    settling: bool = False
    until_s: float = 0.0
    """Of its invisible time, by the loop's clock."""
    expiry: asyncio.TimerHandle | None = None

    @property
    def attempt(self) -> int:
        return self.message.reconsumed + self.repeats + 1


class Lines(Protocol):
    def add(self, held: Held) -> None:
        """It has arrived, or comes again."""

    def take(self, limit: int) -> Sequence[Held]:
        """What may be handed out now."""

    def finished(self, held: Held) -> None:
        """It is settled for good."""

    def clear(self) -> None:
        """The child is gone, and with it all that it held."""


class AsItComes:
    def __init__(self) -> None:
        self._ready: deque[Held] = deque()

    def add(self, held: Held) -> None:
        self._ready.append(held)

    def take(self, limit: int) -> Sequence[Held]:
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def finished(self, held: Held) -> None:
        pass

    def clear(self) -> None:
        self._ready.clear()


@dataclass(eq=False)
class _Queue:
    waiting: list[Held] = field(default_factory=list)
    out: Held | None = None
    expected: int | None = None
    """The offset after the last one that was finished."""
    since_s: float = 0.0
    """When the first of those that wait arrived."""


class OneOfAQueue:
    """By the number of the queue: the package does not say of which broker. Queues of several brokers with one number
    take turns, and each keeps its order, as its offsets grow."""

    def __init__(self, reorder_s: float, wake: Callable[[], None]) -> None:
        """`wake` is called when something may be handed out that could not before."""
        self._reorder_s = reorder_s
        self._wake = wake
        self._queues: dict[int, _Queue] = {}
        self._first = 0

    def add(self, held: Held) -> None:
        queue = self._queues.setdefault(held.message.queue_id, _Queue())
        if queue.out is held:
            queue.out = None
        if not queue.waiting:
            queue.since_s = self._now_s()
        queue.waiting.append(held)
        queue.waiting.sort(key=lambda it: it.message.queue_offset)
        asyncio.get_running_loop().call_later(self._reorder_s, self._wake)

    def take(self, limit: int) -> Sequence[Held]:
        """Another queue is the first at each turn, so that none is left out."""
        found: list[Held] = []
        queues = list(self._queues.values())
        self._first += 1
        for turn in range(len(queues)):
            queue = queues[(self._first + turn) % len(queues)]
            if len(found) < limit and self._may_go(queue):
                queue.out = queue.waiting.pop(0)
                queue.since_s = self._now_s()
                found.append(queue.out)
        return found

    def finished(self, held: Held) -> None:
        queue = self._queues.get(held.message.queue_id)
        if queue is not None and queue.out is held:
            queue.out, queue.expected = None, held.message.queue_offset + 1

    def clear(self) -> None:
        self._queues.clear()

    def _may_go(self, queue: _Queue) -> bool:
        if queue.out is not None or not queue.waiting:
            return False
        head = queue.waiting[0]
        follows = queue.expected is not None and head.message.queue_offset <= queue.expected
        return follows or bool(head.repeats) or self._now_s() - queue.since_s >= self._reorder_s

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
