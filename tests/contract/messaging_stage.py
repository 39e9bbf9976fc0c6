"""What the messaging stories need of a broker under test: a factory, what it is good at, and helpers that wait.

A transport joins by a `transport_factory` fixture; the stories use the port and this page only.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.ports.messaging import (
    CheckRequest,
    Consumer,
    DeadLetter,
    Delivery,
    DiscardedHalf,
    Done,
    OutgoingMessage,
    Topic,
    TopicType,
    TransactionalProducer,
    Transport,
)

ROOT = Path(__file__).resolve().parents[2]
KILLED = -9
LOOK_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class TransportTraits:
    """Where a real broker differs, so that no story guesses."""

    patience_s: float
    """A condition that holds at all holds by then."""
    first_check_s: float
    """A half message is asked about no earlier."""
    check_max: int
    """Questions before it is discarded."""
    invisible_s: float
    """The shortest invisible time that it honours."""
    retry_s: float
    """The shortest retry delay that it honours."""
    delay_s: float
    """A delay that it keeps to `delay_tolerance_s`."""
    delay_tolerance_s: float


class TransportFactory(Protocol):
    @property
    def traits(self) -> TransportTraits: ...

    @property
    def spec(self) -> str:
        """What `tests.contract.victim` opens the same broker by, in a process of its own."""

    async def open(self) -> Transport:
        """Another connection, as another process has it: started, and closed at the end of the test."""


class JumpingFactory(TransportFactory, Protocol):
    async def jump(self, seconds: float) -> None:
        """Move the broker's clock."""


@dataclass
class CheckBook:
    """A check-back that answers from a list, and keeps what it was asked."""

    answers: dict[str, Verdict | Callable[[], Awaitable[Verdict]]] = field(default_factory=dict)
    asked: list[CheckRequest] = field(default_factory=list)

    async def __call__(self, request: CheckRequest) -> Verdict:
        self.asked.append(request)
        answer = self.answers.get(request.key, Verdict.UNKNOWN)
        return answer if isinstance(answer, Verdict) else await answer()

    def asked_keys(self) -> list[str]:
        return [request.key for request in self.asked]


async def eventually(condition: Callable[[], bool | Awaitable[bool]], within_s: float) -> None:
    """Wait until it holds; fail when it does not."""
    async with asyncio.timeout(within_s):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.01)


async def collect(consumer: Consumer, count: int, within_s: float, *, done: bool = True) -> list[Delivery]:
    """The next `count` deliveries, settled as done unless told otherwise."""
    found: list[Delivery] = []
    async with asyncio.timeout(within_s):
        while len(found) < count:
            for delivery in await consumer.receive(count - len(found), 1.0):
                found.append(delivery)
                if done:
                    await consumer.settle(delivery, Done())
    return found


async def received(consumer: Consumer, within_s: float) -> str:
    """The next key. A receive that fails is tried again, as every consumer loop does."""
    async with asyncio.timeout(within_s):
        while True:
            with suppress(BrokerUnavailable):
                for delivery in await consumer.receive(1, 1.0):
                    await consumer.settle(delivery, Done())
                    return delivery.key


def keys(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.key for delivery in deliveries]


def always(verdict: Verdict) -> Callable[[], Awaitable[Verdict]]:
    async def decide() -> Verdict:
        return verdict

    return decide


class Stage:
    """One test's topics on the broker, and the short ways to use them."""

    def __init__(self, factory: TransportFactory, transport: Transport) -> None:
        self.factory = factory
        self.traits = factory.traits
        self.transport = transport
        self.id = uuid.uuid4().hex[:12]
        self.group = f"readers-{self.id}"
        self.order = self.topic(TopicType.TRANSACTION)
        self.normal = self.topic(TopicType.NORMAL)
        self.delay = self.topic(TopicType.DELAY)
        self.fifo = self.topic(TopicType.FIFO)

    def topic(self, type_: TopicType, *, group: str | None = None, max_attempts: int = 16) -> Topic:
        return Topic(
            name=f"contract-{type_.lower()}-{self.id}",
            type=type_,
            group=group or f"{self.group}-{type_.lower()}",
            max_attempts=max_attempts,
        )

    async def set_up(self) -> None:
        await self.transport.create_topics([self.order, self.normal, self.delay, self.fifo])

    async def producer(self, check_back: CheckBook | None = None, on: Transport | None = None) -> TransactionalProducer:
        return await (on or self.transport).producer(self.order.name, check_back or CheckBook())

    async def consumer(self, topic: Topic, *, on: Transport | None = None, invisible_s: float = 60.0) -> Consumer:
        assert topic.group is not None
        return await (on or self.transport).consumer(topic.name, topic.group, invisible_s=invisible_s)

    def message(self, key: str) -> OutgoingMessage:
        return OutgoingMessage(topic=self.order.name, key=key, body=f"body of {key}".encode(), properties={"name": key})

    async def transact(self, producer: TransactionalProducer, key: str, verdict: Verdict) -> Verdict:
        return await producer.transact(self.message(key), always(verdict))

    async def publish(
        self, topic: Topic, *names: str, fifo_group: str | None = None, deliver_at_ms: int | None = None
    ) -> None:
        await self.transport.publisher().publish(
            [
                OutgoingMessage(
                    topic=topic.name,
                    key=name,
                    body=f"body of {name}".encode(),
                    fifo_group=fifo_group,
                    deliver_at_ms=deliver_at_ms,
                )
                for name in names
            ]
        )

    async def discarded(self, on: Transport | None = None) -> Sequence[DiscardedHalf]:
        """Of this test's topic: a real broker keeps those of all in one place."""
        listed = await (on or self.transport).discarded(LOOK_MAX)
        return [half for half in listed if half.topic == self.order.name]

    async def dead_letters(self, topic: Topic, on: Transport | None = None) -> Sequence[DeadLetter]:
        return await (on or self.transport).dead_letters(topic.group or "", LOOK_MAX)

    async def until_backlog(self, *, halves: int, undelivered: int) -> None:
        """A real broker notes an end in bundles, every 3 s by its own settings."""

        async def is_so() -> bool:
            found = await self.transport.backlog(self.order.name, self.order.group or "")
            return (found.halves, found.undelivered) == (halves, undelivered)

        await eventually(is_so, self.traits.patience_s)

    async def seen_until_marker(self, producer: TransactionalProducer, consumer: Consumer) -> list[str]:
        """What is visible on the order topic: a committed marker arrives, and what came with it is all there was."""
        await self.transact(producer, "marker", Verdict.COMMIT)
        seen: list[str] = []
        async with asyncio.timeout(self.traits.patience_s):
            while "marker" not in seen:
                for delivery in await consumer.receive(32, 1.0):
                    seen.append(delivery.key)
                    await consumer.settle(delivery, Done())
        seen.remove("marker")
        return seen

    async def run_victim(self, point: str, topic: Topic, key: str) -> str:
        """A process that does one thing and dies of SIGKILL at the named point; what it printed before."""
        victim = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.contract.victim",
            *(self.factory.spec, point, topic.name, topic.group or "", key),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(self.traits.patience_s + 10):
            printed, _ = await victim.communicate()
        assert victim.returncode == KILLED, "the victim was to die at its point, not before"
        return printed.decode()
