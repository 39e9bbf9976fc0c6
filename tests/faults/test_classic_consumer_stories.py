"""Native consumers whose process, child, broker or handler fails; the child is a process with the client package."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from service.adapters.rocketmq.classic.bounds import DEFAULT
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import Consumer, Done, Topic, TopicType
from tests.contract.messaging_stage import ROOT, collect, eventually, keys, received
from tests.fixtures.classic_reader import READY
from tests.fixtures.proc import descendants, is_alive, resident_kb
from tests.fixtures.rocketmq_messages import send
from tests.fixtures.stage_tools import counted
from tests.fixtures.thorough import many
from tests.servers.rocketmq import BrokerOptions, RocketMQ

pytestmark = [pytest.mark.faults, pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 30.0
STOPPED_WITHIN_S = 10.0
STOPS, SIDE_BY_SIDE = many(50, quick=15), 5
RESUMED_WITHIN_S = 20.0
"""Of the broker's readiness."""
MANY, WARM = many(100_000, quick=30_000), 15_000
FLAT_KB = 10 * 1024
IN_FLIGHT = 64
LONG_POLL_S, STORED_EVERY_S = 15.0, 5.0
"""The package's own."""
REPLACED = "dropgate_rocketmq4_consumers_replaced_total"


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(BrokerOptions())
        stack.callback(broker.stop)
        broker.start()
        yield broker


@dataclass(kw_only=True)
class Desk:
    """A topic with a group on a broker, and what is done with them. Messages are sent by the protocol itself."""

    broker: RocketMQ
    transport: ClassicTransport
    client: RemotingClient
    topic: Topic
    settings: ClassicSettings
    sent: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=count)

    async def consumer(self, *, on: ClassicTransport | None = None, invisible_s: float = 60.0) -> Consumer:
        assert self.topic.group is not None
        return await (on or self.transport).consumer(self.topic.name, self.topic.group, invisible_s=invisible_s)

    async def publish(self, *names: str) -> None:
        await asyncio.gather(*map(self._send, names))
        self.sent.update(names)

    async def _send(self, name: str) -> None:
        number = next(self.numbers)
        properties = {"KEYS": name, "UNIQ_KEY": f"{self.topic.name}-{number}"}
        body = f"body of {name}".encode()
        queue = number % self.settings.queues
        await send(self.client, self.broker.broker, self.topic.name, body, queue=queue, properties=properties)

    @asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Messages come all the time."""
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                await self.publish(*(f"load-{next(self.numbers)}" for _ in range(16)))
                await asyncio.sleep(0.02)

        loading = asyncio.create_task(load())
        try:
            yield
        finally:
            stop.set()
            await loading

    @property
    def spec(self) -> str:
        return json.dumps({"transport": "rocketmq4", "settings": asdict(self.settings)})


@pytest.fixture
async def desk(broker: RocketMQ) -> AsyncIterator[Desk]:
    settings = ClassicSettings(name_servers=broker.name_server, prefix="faults")
    transport, client = ClassicTransport(settings), RemotingClient()
    await transport.start()
    id_ = time.time_ns()
    topic = Topic(name=f"faults-{id_}", type=TopicType.NORMAL, group=f"readers-{id_}")
    await transport.create_topics([topic])
    yield Desk(broker=broker, transport=transport, client=client, topic=topic, settings=settings)
    await transport.close()
    await client.close()


class Reader:
    """A process that consumes (tests/fixtures/classic_reader.py)."""

    def __init__(self, desk: Desk, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.fixtures.classic_reader", desk.spec, desk.topic.name]
        self._command.append(desk.topic.group or "")
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> Reader:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, cwd=ROOT, stdout=log, stderr=log)
        await eventually(lambda: READY in self.lines(), PATIENCE_S)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def child(self) -> int:
        (pid,) = descendants(self.pid)
        return pid

    def lines(self) -> Sequence[str]:
        return self.log.read_text().splitlines()

    def seen(self) -> Counter[str]:
        """Keys."""
        return Counter(line.split()[0] for line in self.lines() if line != READY)

    def send(self, signal_: signal.Signals) -> None:
        os.kill(self.pid, signal_)

    async def ended(self, within_s: float = STOPPED_WITHIN_S) -> int:
        assert self._process is not None
        async with asyncio.timeout(within_s):
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def reader(desk: Desk, tmp_path: Path) -> AsyncIterator[Callable[[], Reader]]:
    """Makes them; those that still run are killed at the end."""
    made: list[Reader] = []

    def make() -> Reader:
        made.append(Reader(desk, tmp_path / f"reader-{len(made)}.log"))
        return made[-1]

    yield make
    await asyncio.gather(*(it.kill() for it in made))


def child_of_ours() -> int:
    """The only one of this process that is no server."""
    (pid,) = [it for it in descendants(os.getpid()) if "classic.worker" in _command_line(it)]
    return pid


def _command_line(pid: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _have_seen(readers: Sequence[Reader], at_least: int) -> bool:
    return sum(it.seen().total() for it in readers) > at_least


# --- stops, kills, stopped processes ----------------------------------------------------------------------------------


async def test_stops_under_load_end_with_0_and_nothing_is_lost(desk: Desk, reader: Callable[[], Reader]) -> None:
    """F48. Five at a time, so that queues change hands all along."""
    readers: list[Reader] = []
    async with desk.under_load():
        for _ in range(STOPS // SIDE_BY_SIDE):
            some = await asyncio.gather(*(reader().start() for _ in range(SIDE_BY_SIDE)))
            await eventually(partial(_have_seen, some, 200), PATIENCE_S)
            readers += some
            for it in some:
                it.send(signal.SIGTERM)
            began_s = time.monotonic()
            assert [await it.ended() for it in some] == [0] * SIDE_BY_SIDE
            assert time.monotonic() - began_s < STOPPED_WITHIN_S
    last = await reader().start()
    readers.append(last)

    def unseen() -> set[str]:
        return desk.sent - set().union(*(it.seen() for it in readers))

    await eventually(lambda: not unseen(), PATIENCE_S)
    seen = sum(it.seen().total() for it in readers)
    print(f"{len(desk.sent)} messages, {seen - len(desk.sent)} of them came twice")


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_child_that_dies_or_stops_is_replaced_and_what_it_held_comes_again(
    desk: Desk, signal_: signal.Signals
) -> None:
    consumer = await desk.consumer()
    await desk.publish("held")
    (held,) = await collect(consumer, 1, PATIENCE_S, done=False)
    child, replaced = child_of_ours(), counted(REPLACED, group=desk.topic.group or "")
    os.kill(child, signal_)
    hurt_s = time.monotonic()
    assert await received(consumer, PATIENCE_S) == "held"
    print(f"{signal_.name}: it came again after {time.monotonic() - hurt_s:.1f} s")
    assert not is_alive(child)
    assert child_of_ours() != child
    assert counted(REPLACED, group=desk.topic.group or "") == replaced + 1
    await consumer.settle(held, Done())  # too late, and harmless
    await desk.publish("next")
    assert await received(consumer, PATIENCE_S) == "next"


async def test_a_process_that_is_killed_takes_its_child_along_and_its_messages_come_elsewhere(
    desk: Desk, reader: Callable[[], Reader]
) -> None:
    first = await reader().start()
    child = first.child
    async with desk.under_load():
        await eventually(lambda: first.seen().total() > 100, PATIENCE_S)
        await first.kill()
        second = await reader().start()
        await eventually(lambda: not is_alive(child), PATIENCE_S)
        await eventually(lambda: second.seen().total() > 100, PATIENCE_S)
    await eventually(lambda: not desk.sent - {*first.seen(), *second.seen()}, PATIENCE_S)


async def test_queues_that_come_back_from_others_that_died_are_read_again(
    desk: Desk, reader: Callable[[], Reader]
) -> None:
    """Each member had all its queues before the others came: the package reads none of those by itself any more."""
    second = ClassicTransport(desk.settings)
    await second.start()
    stayed = [await desk.consumer(), await desk.consumer(on=second)]
    came = await asyncio.gather(*(reader().start() for _ in range(3)))
    await asyncio.gather(*(process.kill() for process in came))
    await desk.publish(*(f"after-{number}" for number in range(40)))
    seen: set[str] = set()

    async def all_are_seen() -> bool:
        for consumer in stayed:
            with suppress(BrokerUnavailable):  # while its child is replaced
                for delivery in await consumer.receive(32, 0.1):
                    seen.add(delivery.key)
                    await consumer.settle(delivery, Done())
        return desk.sent <= seen | {key for process in came for key in process.seen()}

    began_s = time.monotonic()
    await eventually(all_are_seen, PATIENCE_S)
    print(f"all had come after {time.monotonic() - began_s:.1f} s")
    await second.close()


async def test_a_process_that_is_stopped_keeps_no_queue_from_the_others(
    desk: Desk, reader: Callable[[], Reader]
) -> None:
    """Its child, which is not stopped with it, ends by itself; and once it goes on it has another."""
    paused, other = await reader().start(), await reader().start()
    child = paused.child
    paused.send(signal.SIGSTOP)
    await desk.publish(*(f"m-{number}" for number in range(64)))
    await eventually(lambda: not desk.sent - {*other.seen(), *paused.seen()}, DEFAULT.orphaned_after_s + PATIENCE_S)
    assert not is_alive(child)
    paused.send(signal.SIGCONT)
    await eventually(lambda: len(descendants(paused.pid)) == 1 and paused.child != child, PATIENCE_S)


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_many_messages_leave_no_memory_behind(desk: Desk, reader: Callable[[], Reader]) -> None:
    """F48: of the process and of its child each, once both are warm."""
    it = await reader().start()
    warm: dict[int, int] = {}
    began_s = time.monotonic()
    for first in range(0, MANY, IN_FLIGHT):
        await desk.publish(*(f"m-{number}" for number in range(first, min(first + IN_FLIGHT, MANY))))
        if not warm and first >= WARM:
            await eventually(lambda: it.log.stat().st_size > 0, PATIENCE_S)
            warm = {pid: resident_kb(pid) for pid in (it.pid, it.child)}
    sent_s = time.monotonic() - began_s
    await eventually(lambda: it.seen().total() >= MANY, 120.0)
    grown = {pid: resident_kb(pid) - before for pid, before in warm.items()}
    print(f"sent in {sent_s:.0f} s, read in {time.monotonic() - began_s:.0f} s; kB {warm} grew by {grown}")
    assert set(grown) == {it.pid, it.child}, "the child was replaced meanwhile"
    assert max(grown.values()) < FLAT_KB


# --- handlers, brokers, groups ----------------------------------------------------------------------------------------


async def test_a_handler_that_raises_has_its_message_again_and_the_client_goes_on(desk: Desk) -> None:
    """F48: nothing of a handler's fault reaches the package."""
    consumer = await desk.consumer(invisible_s=0.5)
    child = child_of_ours()
    await desk.publish("poison", *(f"good-{number}" for number in range(20)))
    attempts: list[int] = []
    done: list[str] = []

    async def handle(key: str, attempt: int) -> None:
        if key == "poison" and attempt < 3:
            attempts.append(attempt)
            raise ArithmeticError(key)
        done.append(key)

    async with asyncio.timeout(PATIENCE_S):
        while len(done) < len(desk.sent):
            for delivery in await consumer.receive(8, 1.0):
                with suppress(ArithmeticError):
                    await handle(delivery.key, delivery.attempt)
                    await consumer.settle(delivery, Done())
    assert attempts == [1, 2]
    assert sorted(done) == sorted(desk.sent)
    assert child_of_ours() == child


async def test_a_broker_that_restarts_is_consumed_from_again_with_nobodys_help(desk: Desk) -> None:
    consumer = await desk.consumer()
    await desk.publish("before")
    assert await received(consumer, PATIENCE_S) == "before"
    await asyncio.to_thread(desk.broker.broker_process.kill)
    with pytest.raises(BrokerUnavailable):
        await eventually(lambda: _heard_nothing(consumer), PATIENCE_S)
    await asyncio.to_thread(desk.broker.start_broker)
    ready_s = time.monotonic()
    await desk.publish("after")
    assert await received(consumer, RESUMED_WITHIN_S) == "after"
    print(f"consumed again {time.monotonic() - ready_s:.1f} s after the broker was ready")


async def test_a_broker_that_says_nothing_for_a_while_is_a_failure_and_then_goes_on(desk: Desk) -> None:
    """F47: connections stay, and nothing comes through them. No child is replaced for it."""
    consumer, child = await desk.consumer(), child_of_ours()
    desk.broker.broker_process.send(signal.SIGSTOP)
    try:
        with pytest.raises(BrokerUnavailable):
            await eventually(lambda: _heard_nothing(consumer), PATIENCE_S)
    finally:
        desk.broker.broker_process.send(signal.SIGCONT)
    await desk.publish("after")
    assert await received(consumer, RESUMED_WITHIN_S) == "after"
    assert child_of_ours() == child


async def _heard_nothing(consumer: Consumer) -> bool:
    return await consumer.receive(1, 0.2) != []


async def test_a_second_subscription_in_a_group_is_refused_at_its_start(desk: Desk) -> None:
    """A broker keeps one a group: the two would take turns in hearing nothing."""
    consumer = await desk.consumer()
    other = Topic(name=f"{desk.topic.name}-other", type=TopicType.NORMAL, group=desk.topic.group)
    await desk.transport.create_topics([other])
    elsewhere = ClassicTransport(desk.settings)
    await elsewhere.start()
    with pytest.raises(BrokerRefused) as refused:
        await elsewhere.consumer(other.name, desk.topic.group or "", invisible_s=60.0)
    assert desk.topic.name in (refused.value.why or "")
    assert "give each subscription its own group" in (refused.value.why or "")
    await desk.publish("still")
    assert await received(consumer, PATIENCE_S) == "still"
    await consumer.close()
    free = await elsewhere.consumer(other.name, desk.topic.group or "", invisible_s=60.0)
    await free.close()
    await elsewhere.close()


async def test_a_new_group_is_at_the_first_message_before_its_first_consumer_is(desk: Desk) -> None:
    """The package would begin at the end of a queue whose first messages are no longer in a broker's memory."""
    await desk.publish("early")
    consumer = await desk.consumer()
    queues = BrokerQueues(desk.client, desk.broker.broker)
    offsets = [
        await queues.consumer_offset(desk.topic.group or "", desk.topic.name, queue)
        for queue in range(desk.settings.queues)
    ]
    assert offsets == [0] * desk.settings.queues
    assert keys(await collect(consumer, 1, PATIENCE_S)) == ["early"]


async def test_a_child_without_its_library_says_so_and_is_gone(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F48: it was there when this process started, and is not any more."""
    (tmp_path / "rocketmq").mkdir()
    (tmp_path / "rocketmq" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(BrokerUnavailable, match="rocketmq\\.ffi"):
        await desk.consumer()
    assert "classic.worker" not in "".join(map(_command_line, descendants(os.getpid())))


async def test_a_fifo_message_that_is_held_for_long_is_not_stored_as_consumed(desk: Desk) -> None:
    """The package's own callback for order stores it once a pull of 15 s found nothing after it."""
    fifo = Topic(name=f"{desk.topic.name}-fifo", type=TopicType.FIFO, group=f"{desk.topic.group}-fifo")
    await desk.transport.create_topics([fifo])
    desk.topic = fifo
    consumer = await desk.consumer()
    await desk.publish("held")
    await collect(consumer, 1, PATIENCE_S, done=False)
    held_s = time.monotonic()
    await eventually(lambda: time.monotonic() - held_s > LONG_POLL_S + STORED_EVERY_S, PATIENCE_S)
    assert await BrokerQueues(desk.client, desk.broker.broker).consumer_offset(fifo.group or "", fifo.name, 0) == 0
