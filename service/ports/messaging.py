"""The broker as the core sees it. One contract suite (tests/contract/) holds every transport to these words."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from service.domain.check_back import Verdict


class TopicType(StrEnum):
    """`message.type` of a RocketMQ 5 topic. A message of another type is refused by the proxy."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic that must exist, and the consumer group that reads it (None: other services read it)."""

    name: str
    type: TopicType
    group: str | None = None
    max_attempts: int = 16
    """Deliveries before the broker dead-letters. The order group's is effectively unlimited: only our code does it
    there."""
    group_is_ours: bool = True
    """Its settings follow the code. Another service's group keeps its number of attempts, once it is there."""

    @property
    def made_by(self) -> str:
        """The command that makes it, as a sentence has it."""
        option = "" if self.group_is_ours else f" --events-group {self.group}"
        return f"`dropgate topics create{option}`"


@dataclass(frozen=True, kw_only=True)
class OutgoingMessage:
    """`fifo_group` orders a FIFO topic's messages; `deliver_at_ms` (UTC milliseconds) belongs to a DELAY topic, and a
    time that is past means: at once."""

    topic: str
    body: bytes
    key: str
    fifo_group: str | None = None
    deliver_at_ms: int | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A message that this consumer holds for its invisible time. `attempt` counts from 1; `receipt` is the
    transport's."""

    topic: str
    message_id: str
    key: str
    body: bytes
    attempt: int
    born_at_ms: int
    receipt: object
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Done:
    """Processed for good: the broker forgets it for this group."""


@dataclass(frozen=True, kw_only=True)
class RetryAfter:
    """Not now. It comes again no earlier than this; waiting is not failing."""

    delay_s: float
    why: str


@dataclass(frozen=True, kw_only=True)
class Dead:
    """Never: to the dead letters of the group (`%DLQ%group`)."""

    why: str


Outcome = Done | RetryAfter | Dead


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The broker asks what became of a half message. `check` counts from 1."""

    topic: str
    message_id: str
    key: str
    body: bytes
    check: int


CheckBack = Callable[[CheckRequest], Awaitable[Verdict]]
"""Answers a check-back. It never raises and is quick: UNKNOWN on any doubt."""

Decide = Callable[[], Awaitable[Verdict]]
"""Runs between the half receipt and the end of the transaction: the local transaction."""


class TransactionalProducer(Protocol):
    async def transact(self, message: OutgoingMessage, decide: Decide) -> Verdict:
        """Send the half message, run `decide` once the broker has it, end the transaction as it says.

        BrokerUnavailable before `decide` ran: no half receipt, `decide` was not called. After it nothing is raised: a
        COMMIT or ROLLBACK that fails is a hint lost, the check-back resolves it. Not cancelled midway: callers shield
        it. What `decide` itself raises passes through, and the half message stays undecided: UNKNOWN.
        BrokerRefused: the topic is missing or not of type TRANSACTION, or the message carries a delay or a FIFO group.
        """


class Publisher(Protocol):
    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store the messages, in order within a FIFO group. BrokerUnavailable: some may be stored.

        BrokerRefused: a topic is missing, or not of its message's type.
        """


class Consumer(Protocol):
    async def receive(self, max_messages: int, wait_s: float) -> Sequence[Delivery]:
        """Up to `max_messages`, waiting up to `wait_s` for the first one."""

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Say what became of it. A failed settle means that it comes again."""

    async def close(self) -> None:
        """Stop receiving. What is held and not settled comes again after its invisible time."""


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What of the order topic has not ended: half messages without a verdict, and committed messages not acknowledged.

    None: this broker cannot say. What a consumer has put off for a moment may be missing from `undelivered` for up to
    `blind_s`, and is then handed out again: empty means empty for so long."""

    halves: int | None
    undelivered: int | None
    blind_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DiscardedHalf:
    """A half message that was asked about `checks` times in vain: the broker asks no more, and never delivers it."""

    message_id: str
    topic: str
    key: str
    body: bytes
    checks: int
    born_at_ms: int
    discarded_at_ms: int


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message that its group gave up, or that our code refused for good. `message_id` names it to
    `forget_dead_letter`, and is not the one that a consumer saw."""

    group: str
    topic: str
    """Where it was sent to."""
    message_id: str
    key: str
    body: bytes
    attempts: int
    """Deliveries."""
    why: str | None
    """What our code said. None: this broker does not keep it."""
    born_at_ms: int
    dead_at_ms: int


class Transport(Protocol):
    """One broker connection: `start` before anything else, `close` last."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def background(self) -> Sequence[Task[None]]:
        """The tasks that work from `start` to `close`. One that ends earlier is a fault: the process must stop."""

    async def producer(self, topic: str, check_back: CheckBack) -> TransactionalProducer:
        """Registers this process for the topic's check-backs, without waiting for traffic."""

    def publisher(self) -> Publisher: ...

    async def consumer(self, topic: str, group: str, *, invisible_s: float) -> Consumer: ...

    async def create_topics(self, topics: Sequence[Topic]) -> None:
        """Make what is missing; leave what is there."""

    async def missing(self, topics: Sequence[Topic]) -> Sequence[str]:
        """One sentence for each topic, type or group that is not as wanted, with the remedy. Empty: all there.

        BrokerUnavailable: they cannot be asked for."""

    async def away(self) -> Sequence[str]:
        """One sentence for each server on the way of messages that gives no sign of life, with the remedy."""

    async def backlog(self, topic: str, group: str) -> Backlog: ...

    async def discarded(self, limit: int) -> Sequence[DiscardedHalf]:
        """Half messages whose checks are used up and that nobody has dealt with, oldest first."""

    async def forget_discarded(self, message_id: str) -> None:
        """It is dealt with: not listed any more."""

    async def resume_discarded(self, message_id: str) -> None:
        """Ask about it again, from question 1; it is not listed as discarded any more. Accepted is not committed.

        If it is discarded once more it is listed again, as a rule by another id. BrokerRefused: no discarded half
        message of ours that is not dealt with has this id, and nothing was done. BrokerUnavailable: it may be resumed.
        By two processes at the same time it may be resumed twice, and then delivered twice. Consumers must bear it.
        """

    async def dead_letters(self, group: str, limit: int) -> Sequence[DeadLetter]:
        """Of this group of ours, not dealt with, oldest first. The broker keeps them for days, not for ever."""

    async def forget_dead_letter(self, group: str, message_id: str) -> None:
        """It is dealt with: not listed any more. An id that is not there is left alone.

        So for `forget_discarded`. What is forgotten before an older one may be listed again by another process, or
        after a restart: whoever deals with it must bear to meet it twice."""
