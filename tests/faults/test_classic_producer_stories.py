"""Native producers whose broker is deaf, dead or cut off, whose process is stopped under load, and their memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.ports.messaging import CheckRequest, Done, OutgoingMessage, Topic, TopicType, TransactionalProducer
from tests.contract.messaging_stage import ROOT, CheckBook, always, collect, eventually, keys
from tests.fixtures.classic_sender import READY
from tests.fixtures.proc import resident_kb
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.thorough import many
from tests.servers.rocketmq import QUICK, RocketMQ

pytestmark = [pytest.mark.faults, pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 30.0
SENT_WITHIN_S = ClassicSettings.call_timeout_s + 1.0
RESUMED_WITHIN_S = 20.0
"""Of the broker's readiness, or of the end of a black hole."""
STOPPED_WITHIN_S = 10.0
STOPS, SIDE_BY_SIDE = many(50, quick=15), 5
MANY, WARM, AT_ONCE = many(100_000, quick=20_000), 10_000, 32
FLAT_KB = 10 * 1024
PROXIED = "127.0.0.2"
"""Where the broker says that it is; there a TCP proxy listens."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(replace(QUICK, more={**QUICK.more, "brokerIP1": PROXIED}))
        stack.callback(broker.stop)
        broker.start()
        yield broker


@pytest.fixture(scope="module")
def way(broker: RocketMQ) -> Iterator[TcpProxy]:
    """From the clients to the broker."""
    proxy = TcpProxy(broker.broker, listen=f"{PROXIED}:{broker.broker.rpartition(':')[2]}")
    yield proxy
    proxy.close()


@dataclass(kw_only=True)
class Desk:
    transport: ClassicTransport
    settings: ClassicSettings
    orders: Topic
    events: Topic
    checks: CheckBook

    @property
    def spec(self) -> str:
        return json.dumps({"transport": "rocketmq4", "settings": asdict(self.settings)})

    async def producer(self) -> TransactionalProducer:
        return await self.transport.producer(self.orders.name, self.checks)

    def order(self, key: str) -> OutgoingMessage:
        return OutgoingMessage(topic=self.orders.name, key=key, body=b"order")

    async def sold(self, key: str, verdict: Verdict = Verdict.COMMIT) -> None:
        """A send that fails is tried again."""
        producer = await self.producer()
        async with asyncio.timeout(RESUMED_WITHIN_S):
            while True:
                with suppress(BrokerUnavailable):
                    await producer.transact(self.order(key), always(verdict))
                    return
                await asyncio.sleep(0.2)

    async def published(self, key: str) -> None:
        message = OutgoingMessage(topic=self.events.name, key=key, body=b"event", fifo_group=key)
        await self.transport.publisher().publish([message])

    async def seen(self, *wanted: str) -> list[str]:
        """Keys of the orders, in the order of their coming, until these have come."""
        consumer = await self.transport.consumer(self.orders.name, self.orders.group or "", invisible_s=60)
        found: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while not set(wanted) <= set(found):
                with suppress(BrokerUnavailable):
                    for delivery in await consumer.receive(32, 1.0):
                        found.append(delivery.key)
                        await consumer.settle(delivery, Done())
        return found


@pytest.fixture
async def make_desk(broker: RocketMQ, way: TcpProxy) -> AsyncIterator[Callable[..., Any]]:
    opened: list[ClassicTransport] = []

    async def make(**more: Any) -> Desk:
        settings = replace(ClassicSettings(name_servers=broker.name_server, prefix="faults"), **more)
        transport = ClassicTransport(settings)
        await transport.start()
        opened.append(transport)
        id_ = time.time_ns()
        orders = Topic(name=f"faults-order-{id_}", type=TopicType.TRANSACTION, group=f"orders-{id_}")
        events = Topic(name=f"faults-events-{id_}", type=TopicType.FIFO)
        await transport.create_topics([orders, events])
        return Desk(transport=transport, settings=settings, orders=orders, events=events, checks=CheckBook())

    yield make
    way.heal()
    await asyncio.gather(*(transport.close() for transport in opened))


async def never() -> Verdict:
    raise AssertionError("nothing was received: it must not be decided")


async def commits(_: CheckRequest) -> Verdict:
    """Keeps nothing."""
    return Verdict.COMMIT


async def fails_in_time(desk: Desk) -> None:
    producer = await desk.producer()
    for ask in (lambda: producer.transact(desk.order("lost"), never), lambda: desk.published("lost")):
        began_s = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            await ask()
        assert time.monotonic() - began_s < SENT_WITHIN_S


# --- brokers ----------------------------------------------------------------------------------------------------------


async def test_a_deaf_broker_ends_a_send_by_our_deadline_and_is_used_again_once_it_hears(
    broker: RocketMQ, make_desk: Callable[..., Any]
) -> None:
    """F12. What it hears late is never decided: it is rolled back, or asked about."""
    desk = await make_desk(deaf_after_s=4.0)
    desk.checks.answers["lost"] = Verdict.ROLLBACK
    await desk.sold("before")
    await desk.published("before")
    broker.broker_process.send(signal.SIGSTOP)
    try:
        await fails_in_time(desk)
        producer = await desk.producer()
        more = await asyncio.gather(
            *(producer.transact(desk.order("lost"), never) for _ in range(64)), return_exceptions=True
        )
        assert {type(it) for it in more} == {BrokerUnavailable}

        async def is_said_to_be_away() -> bool:
            return len(await desk.transport.away()) == 1

        await eventually(is_said_to_be_away, PATIENCE_S)
    finally:
        broker.broker_process.send(signal.SIGCONT)
    began_s = time.monotonic()
    await desk.sold("after")
    print(f"sells after {time.monotonic() - began_s:.1f} s")
    await desk.published("after")

    async def is_there() -> bool:
        return await desk.transport.away() == []

    await eventually(is_there, PATIENCE_S)
    assert sorted(await desk.seen("after", "before")) == ["after", "before"]


async def test_a_broker_that_restarts_asks_an_idle_process_with_nobodys_help(
    broker: RocketMQ, make_desk: Callable[..., Any]
) -> None:
    """F07: the package would say its name again with its next heartbeat, within 30 s."""
    desk = await make_desk()
    await desk.sold("doubt", Verdict.UNKNOWN)
    await eventually(lambda: "doubt" in desk.checks.asked_keys(), PATIENCE_S)
    broker.broker_process.kill()
    await fails_in_time(desk)
    await asyncio.to_thread(broker.start_broker)
    ready_s, asked = time.monotonic(), len(desk.checks.asked)
    await eventually(lambda: len(desk.checks.asked) > asked, RESUMED_WITHIN_S)
    print(f"asks after {time.monotonic() - ready_s:.1f} s")
    desk.checks.answers["doubt"] = Verdict.COMMIT
    await desk.sold("after")
    print(f"sells after {time.monotonic() - ready_s:.1f} s")
    await desk.published("after")
    assert "doubt" in await desk.seen("doubt")


async def test_a_black_hole_that_heals_is_left_behind(way: TcpProxy, make_desk: Callable[..., Any]) -> None:
    """F47."""
    desk = await make_desk()
    desk.checks.answers["doubt"] = Verdict.COMMIT
    await desk.sold("before")
    way.swallow()
    await fails_in_time(desk)
    await asyncio.sleep(5)
    way.heal()
    healed_s = time.monotonic()
    await desk.sold("doubt", Verdict.UNKNOWN)
    print(f"sells after {time.monotonic() - healed_s:.1f} s")
    await eventually(lambda: "doubt" in desk.checks.asked_keys(), RESUMED_WITHIN_S)
    print(f"is asked after {time.monotonic() - healed_s:.1f} s")


async def test_an_idle_connection_that_died_without_a_word_is_made_anew(
    way: TcpProxy, make_desk: Callable[..., Any]
) -> None:
    """As behind a firewall that has forgotten it: nothing is sent, so nothing fails, and no question comes."""
    desk = await make_desk(beat_every_s=2.0)
    await desk.sold("doubt", Verdict.UNKNOWN)
    way.forget()
    forgotten_s, asked = time.monotonic(), len(desk.checks.asked)
    await eventually(lambda: len(desk.checks.asked) > asked, RESUMED_WITHIN_S)
    print(f"is asked after {time.monotonic() - forgotten_s:.1f} s")


async def test_a_client_that_the_brokers_do_not_know_for_long_is_replaced(
    way: TcpProxy, make_desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it came to that: its heartbeats are lost here."""
    desk = await make_desk(replace_after_s=4.0, look_every_s=0.5)
    await desk.sold("before")
    keeper = desk.transport._keeper
    assert keeper is not None
    old = await keeper.client()
    monkeypatch.setattr(old.link, "instance", "another")
    await eventually(lambda: keeper._client is not old, PATIENCE_S)
    await desk.sold("doubt", Verdict.UNKNOWN)
    await eventually(lambda: "doubt" in desk.checks.asked_keys(), PATIENCE_S)
    desk.checks.answers["doubt"] = Verdict.COMMIT
    assert await desk.seen("doubt") == ["before", "doubt"]


# --- questions --------------------------------------------------------------------------------------------------------


async def test_a_hundred_questions_are_answered_while_one_answer_hangs(make_desk: Callable[..., Any]) -> None:
    """F10: the package has one thread for all of them."""

    async def hang() -> Verdict:
        await asyncio.Event().wait()
        return Verdict.COMMIT

    desk, others = await make_desk(check_deadline_s=10.0), [f"doubt-{n}" for n in range(99)]
    desk.checks.answers.update({"hangs": hang, **dict.fromkeys(others, Verdict.COMMIT)})
    for key in ("hangs", *others):
        await desk.sold(key, Verdict.UNKNOWN)
    consumer = await desk.transport.consumer(desk.orders.name, desk.orders.group or "", invisible_s=60)
    seen: set[str] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < len(others):
            seen.update(keys(await collect(consumer, 1, PATIENCE_S)))
    assert seen == set(others)


# --- stops ------------------------------------------------------------------------------------------------------------


async def test_closing_waits_for_a_commit_that_is_under_way(make_desk: Callable[..., Any]) -> None:
    """F50: a stop does not turn a sold reservation into a question."""
    desk = await make_desk()
    leaving = ClassicTransport(desk.settings)
    await leaving.start()
    producer = await leaving.producer(desk.orders.name, desk.checks)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def decide() -> Verdict:
        begun.set()
        await may_end.wait()
        return Verdict.COMMIT

    selling = asyncio.create_task(producer.transact(desk.order("sold"), decide))
    await begun.wait()
    closing = asyncio.create_task(leaving.close())
    await asyncio.sleep(0.3)
    may_end.set()
    assert await selling is Verdict.COMMIT
    await closing
    assert await desk.seen("sold") == ["sold"]
    assert desk.checks.asked == []


class Sender:
    """A process that sells (tests/fixtures/classic_sender.py)."""

    def __init__(self, desk: Desk, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.fixtures.classic_sender", desk.spec]
        self._command += [desk.orders.name, desk.events.name]
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> Sender:
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, cwd=ROOT, stdout=log, stderr=log)
        await eventually(lambda: len(self.lines()) > AT_ONCE * 2, PATIENCE_S)
        return self

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    async def stopped(self) -> int:
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(STOPPED_WITHIN_S):
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def sender(tmp_path: Path) -> AsyncIterator[Callable[[Desk], Sender]]:
    """Makes them; those that still run are killed at the end."""
    made: list[Sender] = []

    def make(desk: Desk) -> Sender:
        made.append(Sender(desk, tmp_path / f"sender-{len(made)}.log"))
        return made[-1]

    yield make
    await asyncio.gather(*(it.kill() for it in made))


async def test_stops_under_load_end_with_0_and_lose_nothing_that_was_sold(
    make_desk: Callable[..., Any], sender: Callable[[Desk], Sender]
) -> None:
    """F48, F50."""
    desk, sold = await make_desk(), set[str]()
    slowest_s = 0.0
    for _ in range(STOPS // SIDE_BY_SIDE):
        some = await asyncio.gather(*(sender(desk).start() for _ in range(SIDE_BY_SIDE)))
        began_s = time.monotonic()
        assert await asyncio.gather(*(it.stopped() for it in some)) == [0] * SIDE_BY_SIDE
        slowest_s = max(slowest_s, time.monotonic() - began_s)
        sold |= {line for it in some for line in it.lines()} - {READY}

    await desk.transport.producer(desk.orders.name, commits)
    seen = await desk.seen(*sold)
    more = len(seen) - len(sold)
    print(f"{len(sold)} sold, {more} more came; the slowest stop of {SIDE_BY_SIDE} took {slowest_s:.1f} s")


async def test_a_stop_while_the_broker_is_deaf_is_a_stop_in_time(
    broker: RocketMQ, make_desk: Callable[..., Any], sender: Callable[[Desk], Sender]
) -> None:
    """The library itself would wait for ever for its last connection."""
    desk = await make_desk()
    it = await sender(desk).start()
    broker.broker_process.send(signal.SIGSTOP)
    try:
        assert await it.stopped() == 0
    finally:
        broker.broker_process.send(signal.SIGCONT)


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_many_half_messages_leave_no_memory_behind(make_desk: Callable[..., Any]) -> None:
    """F48."""
    desk = await make_desk()
    producer, numbers = await desk.transport.producer(desk.orders.name, commits), iter(range(MANY))
    warm_kb, began_s = 0, time.monotonic()

    async def sell() -> None:
        nonlocal warm_kb
        for number in numbers:
            await producer.transact(desk.order(f"order-{number}"), always(Verdict.COMMIT))
            if number == WARM:
                warm_kb = resident_kb(os.getpid())

    await asyncio.gather(*(sell() for _ in range(AT_ONCE)))
    grown_kb, took_s = resident_kb(os.getpid()) - warm_kb, time.monotonic() - began_s
    print(f"{MANY} in {took_s:.0f} s, {MANY / took_s:.0f} per s; {warm_kb} kB grew by {grown_kb} kB")
    assert grown_kb < FLAT_KB
