"""Queues that a child has and does not read.

The package never reads a queue again that it has lost to another consumer and has once more (seen). A new child does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Queue = tuple[str, str, int]
"""Broker, topic, number."""


class Standstill:
    """Of one child, look by look."""

    def __init__(self) -> None:
        self._unread: Mapping[Queue, int] = {}

    def found(self, unread: Mapping[Queue, int]) -> Sequence[Queue]:
        """`unread`: queues with more to read of which nothing is on its way, and how far they are. Those that were
        exactly so at the last look too."""
        still = sorted(queue for queue, at in unread.items() if self._unread.get(queue) == at)
        self._unread = unread
        return still
