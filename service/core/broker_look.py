"""What the broker gave up, for a person to see: dead letters of our groups, and how many half messages are where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.topics import Topics
from service.domain.errors import BrokerUnavailable
from service.domain.replay import LOOK_MAX
from service.ports.messaging import DeadLetter, Transport

LETTERS_MAX = 200
"""Dead letters of a group that are shown: a person reads no more."""


@dataclass(frozen=True, kw_only=True)
class BrokerNumbers:
    """Half messages without a verdict, and those whose check-backs are used up (LOOK_MAX: so many or more). None: the
    broker is away, or cannot say."""

    halves: int | None
    discarded: int | None


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """Of all our groups, each oldest first. `more`: a group has more than are shown."""

    letters: tuple[DeadLetter, ...]
    more: bool


class BrokerLook:
    def __init__(self, transport: Transport, topics: Topics) -> None:
        self._transport = transport
        self._topics = topics

    async def numbers(self) -> BrokerNumbers:
        order = self._topics.order
        try:
            backlog = await self._transport.backlog(order.name, order.group or "")
            discarded = await self._transport.discarded(LOOK_MAX)
        except BrokerUnavailable:
            return BrokerNumbers(halves=None, discarded=None)
        return BrokerNumbers(halves=backlog.halves, discarded=len(discarded))

    async def dead_letters(self) -> DeadLetters:
        """BrokerUnavailable."""
        letters: list[DeadLetter] = []
        more = False
        for group in self._groups():
            found = await self._transport.dead_letters(group, LETTERS_MAX + 1)
            letters += found[:LETTERS_MAX]
            more = more or len(found) > LETTERS_MAX
        return DeadLetters(letters=tuple(letters), more=more)

    def _groups(self) -> Sequence[str]:
        return [topic.group for topic in self._topics.all() if topic.group is not None]
