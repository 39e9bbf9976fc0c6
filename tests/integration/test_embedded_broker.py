"""What is the embedded broker's own: its file, its clock, its operator's look, and the file being away."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.transport import FILE_NAME, EmbeddedTransport
from service.adapters.memory.clock import ManualClock
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import (
    CheckRequest,
    Dead,
    DeadLetter,
    DiscardedHalf,
    Done,
    OutgoingMessage,
    RetryAfter,
    Topic,
    TopicType,
)
from tests.contract.messaging_stage import CheckBook, always, collect, eventually, keys

SETTINGS = EmbeddedSettings(busy_s=0.2, check_poll_s=0.01, poll_s=0.01)
ORDERS = Topic(name="orders", type=TopicType.TRANSACTION, group="creator")
TIMEOUTS = Topic(name="timeouts", type=TopicType.DELAY, group="timeouts")
EVENTS = Topic(name="events", type=TopicType.FIFO)
HOUR_S = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[EmbeddedTransport]:
    broker = EmbeddedTransport(tmp_path, clock, SETTINGS)
    await broker.start()
    await broker.create_topics([ORDERS, TIMEOUTS, EVENTS])
    yield broker
    await broker.close()


def order(key: str) -> OutgoingMessage:
    return OutgoingMessage(topic=ORDERS.name, key=key, body=b"")


def keys_of(aside: Sequence[DeadLetter] | Sequence[DiscardedHalf]) -> list[str]:
    return [it.key for it in aside]


def event(key: str, group: str) -> OutgoingMessage:
    return OutgoingMessage(topic=EVENTS.name, key=key, body=b"", fifo_group=group)


async def test_a_quarter_of_an_hour_passes_when_the_clock_says_so(
    broker: EmbeddedTransport, clock: ManualClock
) -> None:
    consumer = await broker.consumer(TIMEOUTS.name, "timeouts", invisible_s=60)
    due_ms = clock.now_ms() + 15 * 60 * 1000
    await broker.publisher().publish([OutgoingMessage(topic=TIMEOUTS.name, key="r1", body=b"", deliver_at_ms=due_ms)])
    await clock.advance(15 * 60 - 0.001)
    assert await consumer.receive(1, 0.05) == []
    await clock.advance(0.001)
    assert keys(await collect(consumer, 1, 5)) == ["r1"]


async def test_a_half_message_is_asked_about_after_six_seconds_and_then_every_thirty(
    broker: EmbeddedTransport, clock: ManualClock
) -> None:
    sent_at_ms = clock.now_ms()
    asked_at: list[float] = []

    async def check_back(_: CheckRequest) -> Verdict:
        asked_at.append((clock.now_ms() - sent_at_ms) / 1000)
        return Verdict.UNKNOWN

    producer = await broker.producer(ORDERS.name, check_back)
    await producer.transact(order("doubt"), always(Verdict.UNKNOWN))
    consumer = await broker.consumer(ORDERS.name, "creator", invisible_s=60)
    expected: list[float] = []
    for step in (6, *[30] * 14):
        await clock.advance(step - 0.001)
        assert await consumer.receive(1, 0.05) == []  # several turns of the pump
        assert asked_at == expected
        await clock.advance(0.001)
        expected.append(expected[-1] + step if expected else step)
        await eventually(lambda: len(asked_at) == len(expected), 5)
    assert asked_at == expected
    await clock.advance(30)

    async def is_discarded() -> bool:
        return [message.key for message in await broker.discarded()] == ["doubt"]

    await eventually(is_discarded, 5)
    assert (await broker.counts()).halves == 0


async def test_a_resumed_message_leaves_the_list_and_comes_back_when_it_fails_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = EmbeddedSettings(transaction_timeout_s=1, check_max=1, check_poll_s=0.01)
    broker = EmbeddedTransport(tmp_path, clock, settings)
    await broker.start()
    await broker.create_topics([ORDERS])
    producer = await broker.producer(ORDERS.name, CheckBook())
    await producer.transact(order("doubt"), always(Verdict.UNKNOWN))

    async def discarded() -> bool:
        await clock.advance(1)
        return len(await broker.discarded()) == 1

    await eventually(discarded, 5)
    (message,) = await broker.discarded()
    assert (message.key, message.checks) == ("doubt", 1)
    await broker.resume_discarded(message.message_id)
    for dealt_with in (message.message_id, "unknown"):
        with pytest.raises(BrokerRefused):
            await broker.resume_discarded(dealt_with)
    assert await broker.discarded() == []
    await eventually(discarded, 5)
    await broker.close()


async def test_a_settle_that_comes_too_late_does_not_touch_the_next_delivery(
    broker: EmbeddedTransport, clock: ManualClock
) -> None:
    await broker.create_topics([Topic(name="events", type=TopicType.FIFO, group="shop")])
    consumer = await broker.consumer(EVENTS.name, "shop", invisible_s=10)
    await broker.publisher().publish([event("e1", "r1")])
    (late,) = await collect(consumer, 1, 5, done=False)
    await clock.advance(10)
    (current,) = await collect(consumer, 1, 5, done=False)
    for outcome in (Done(), RetryAfter(delay_s=0, why="late"), Dead(why="late")):
        await consumer.settle(late, outcome)
    assert (await broker.counts()).undelivered == {"shop": 1}
    assert await broker.dead_letters("shop") == []
    await consumer.settle(current, Done())
    assert (await broker.counts()).undelivered == {}


async def test_a_dead_letter_says_what_it_was_and_why(broker: EmbeddedTransport, clock: ManualClock) -> None:
    await broker.create_topics([Topic(name="events", type=TopicType.FIFO, group="shop", max_attempts=1)])
    consumer = await broker.consumer(EVENTS.name, "shop", invisible_s=10)
    await broker.publisher().publish([event("retried", "a"), event("forgotten", "b"), event("poison", "c")])
    held = {delivery.key: delivery for delivery in await collect(consumer, 3, 5, done=False)}
    await consumer.settle(held["poison"], Dead(why="no such schema"))
    await consumer.settle(held["retried"], RetryAfter(delay_s=1, why="SQL is away"))
    await clock.advance(10)
    assert await consumer.receive(8, 0.05) == []
    letters = await broker.dead_letters("shop")
    assert {(letter.key, letter.attempts, letter.why) for letter in letters} == {
        ("poison", 1, "no such schema"),
        ("retried", 1, "SQL is away"),
        ("forgotten", 1, "not settled in its invisible time"),
    }
    counts = await broker.counts()
    assert (counts.messages, counts.undelivered, counts.dead_letters) == (0, {}, {"shop": 3})


async def test_a_group_made_later_starts_with_what_is_kept_in_order(broker: EmbeddedTransport) -> None:
    await broker.publisher().publish([event("a1", "a"), event("a2", "a"), event("b1", "b")])
    await broker.create_topics([Topic(name="events", type=TopicType.FIFO, group="shop")])
    consumer = await broker.consumer(EVENTS.name, "shop", invisible_s=10)
    assert keys(await collect(consumer, 3, 5)) == ["a1", "b1", "a2"]
    assert (await broker.counts()).messages == 0


async def test_what_nobody_reads_is_deleted_after_three_days_in_bounded_chunks(
    tmp_path: Path, clock: ManualClock
) -> None:
    broker = EmbeddedTransport(tmp_path, clock, EmbeddedSettings(retention_chunk=10))
    await broker.start()
    await broker.create_topics([EVENTS])
    await broker.publisher().publish([event(f"old-{n}", "g") for n in range(25)])
    await clock.advance(71 * HOUR_S)
    await broker.publisher().publish([event("young", "g")])
    assert not await broker.retain_once()
    await clock.advance(2 * HOUR_S)
    chunks = [await broker.retain_once() for _ in range(3)]
    assert chunks == [True, True, False]
    assert (await broker.counts()).messages == 1
    await broker.close()


async def test_what_was_put_aside_is_kept_for_three_days(tmp_path: Path, clock: ManualClock) -> None:
    settings = EmbeddedSettings(transaction_timeout_s=1, check_max=1, check_poll_s=0.01)
    broker = EmbeddedTransport(tmp_path, clock, settings)
    await broker.start()
    await broker.create_topics([ORDERS])
    producer = await broker.producer(ORDERS.name, CheckBook())
    consumer = await broker.consumer(ORDERS.name, "creator", invisible_s=60)
    await producer.transact(order("poison"), always(Verdict.COMMIT))
    (delivery,) = await collect(consumer, 1, 5, done=False)
    await consumer.settle(delivery, Dead(why="no such schema"))
    await producer.transact(order("doubt"), always(Verdict.UNKNOWN))

    async def discarded() -> bool:
        await clock.advance(1)
        return len(await broker.discarded()) == 1

    await eventually(discarded, 5)
    await clock.advance(71 * HOUR_S)
    await broker.retain_once()
    assert (keys_of(await broker.dead_letters("creator")), keys_of(await broker.discarded())) == (["poison"], ["doubt"])
    await clock.advance(2 * HOUR_S)
    await broker.retain_once()
    assert (await broker.dead_letters("creator"), await broker.discarded()) == ([], [])
    await broker.close()


async def test_two_copies_of_a_message_are_two_dead_letters(broker: EmbeddedTransport, clock: ManualClock) -> None:
    checks = CheckBook({"twice": Verdict.COMMIT})
    producer = await broker.producer(ORDERS.name, checks)
    consumer = await broker.consumer(ORDERS.name, "creator", invisible_s=60)

    async def decide() -> Verdict:
        await clock.advance(6)
        (delivery,) = await collect(consumer, 1, 5, done=False)
        await consumer.settle(delivery, Dead(why="no such schema"))
        return Verdict.COMMIT

    await producer.transact(order("twice"), decide)
    (delivery,) = await collect(consumer, 1, 5, done=False)
    await consumer.settle(delivery, Dead(why="no such schema"))
    first, second = await broker.dead_letters("creator")
    assert (first.key, second.key) == ("twice", "twice")
    await broker.forget_dead_letter("creator", first.message_id)
    assert await broker.dead_letters("creator") == [second]


async def test_the_file_does_not_grow_with_what_was_acknowledged(broker: EmbeddedTransport, tmp_path: Path) -> None:
    producer = await broker.producer(ORDERS.name, CheckBook())
    consumer = await broker.consumer(ORDERS.name, "creator", invisible_s=60)
    sizes = []
    for round_ in range(3):
        body = b"x" * 2000
        messages = [OutgoingMessage(topic=ORDERS.name, key=f"{round_}-{n}", body=body) for n in range(300)]
        await asyncio.gather(*(producer.transact(message, always(Verdict.COMMIT)) for message in messages))
        await collect(consumer, 300, 20)
        sizes.append((tmp_path / FILE_NAME).stat().st_size)
    assert (await broker.counts()).messages == 0
    assert sizes[2] <= sizes[1] * 1.1


async def test_groups_follow_the_attempts_that_the_code_wants(broker: EmbeddedTransport) -> None:
    patient = Topic(name="orders", type=TopicType.TRANSACTION, group="creator", max_attempts=1_000_000)
    (sentence,) = await broker.missing([patient])
    assert "allows 16 attempts, not 1000000" in sentence
    await broker.create_topics([patient])
    assert await broker.missing([patient]) == []


async def test_a_batch_with_one_refused_message_stores_none(broker: EmbeddedTransport) -> None:
    with pytest.raises(BrokerRefused):
        await broker.publisher().publish([event("fine", "a"), order("wrong")])
    assert (await broker.counts()).messages == 0


class TestTheFileIsAway:
    async def test_while_another_holds_it_no_half_message_is_sent_and_nothing_is_decided(
        self, broker: EmbeddedTransport, tmp_path: Path
    ) -> None:
        called: list[str] = []

        async def decide() -> Verdict:
            called.append("decide")
            return Verdict.COMMIT

        producer = await broker.producer(ORDERS.name, CheckBook())
        holder = held_file(tmp_path)
        with pytest.raises(BrokerUnavailable):
            await producer.transact(order("o1"), decide)
        assert called == []
        holder.close()
        assert await producer.transact(order("o2"), decide) is Verdict.COMMIT

    async def test_a_commit_that_fails_is_a_hint_lost_and_the_check_back_resolves_it(
        self, broker: EmbeddedTransport, tmp_path: Path, clock: ManualClock
    ) -> None:
        checks = CheckBook({"o1": Verdict.COMMIT})
        producer = await broker.producer(ORDERS.name, checks)
        holders: list[sqlite3.Connection] = []

        async def decide() -> Verdict:
            holders.append(held_file(tmp_path))
            return Verdict.COMMIT

        assert await producer.transact(order("o1"), decide) is Verdict.COMMIT
        holders[0].close()
        await clock.advance(6)
        consumer = await broker.consumer(ORDERS.name, "creator", invisible_s=60)
        assert keys(await collect(consumer, 1, 5)) == ["o1"]
        assert checks.asked_keys() == ["o1"]

    async def test_a_loop_survives_it(self, broker: EmbeddedTransport, tmp_path: Path, clock: ManualClock) -> None:
        checks = CheckBook()
        producer = await broker.producer(ORDERS.name, checks)
        await producer.transact(order("doubt"), always(Verdict.UNKNOWN))
        holder = held_file(tmp_path)
        await clock.advance(6)
        with pytest.raises(BrokerUnavailable):
            await broker.publisher().publish([event("e", "g")])
        holder.close()
        await eventually(lambda: checks.asked_keys() == ["doubt"], 5)
        assert not any(task.done() for task in broker.background())

    async def test_closed_or_not_started_it_refuses_and_never_hangs(self, tmp_path: Path, clock: ManualClock) -> None:
        broker = EmbeddedTransport(tmp_path, clock, SETTINGS)
        with pytest.raises(BrokerUnavailable):
            await broker.create_topics([ORDERS])
        await broker.close()
        await broker.start()
        await broker.create_topics([EVENTS])
        publisher = broker.publisher()
        await broker.close()
        with pytest.raises(BrokerUnavailable):
            await publisher.publish([event("e", "g")])
        await broker.close()

    async def test_a_file_of_a_newer_release_is_refused(self, tmp_path: Path, clock: ManualClock) -> None:
        newer = sqlite3.connect(tmp_path / FILE_NAME)
        newer.execute("PRAGMA user_version = 99")
        newer.close()
        with pytest.raises(BrokerUnavailable, match="schema 99"):
            await EmbeddedTransport(tmp_path, clock, SETTINGS).start()

    async def test_a_folder_that_cannot_be_made_is_said_so(self, tmp_path: Path, clock: ManualClock) -> None:
        (tmp_path / "file").write_text("not a folder")
        with pytest.raises(BrokerUnavailable, match="file"):
            await EmbeddedTransport(tmp_path / "file", clock, SETTINGS).start()


async def test_a_defect_in_the_store_ends_its_task_and_leaves_nobody_waiting(
    broker: EmbeddedTransport,
) -> None:
    def defect(_: sqlite3.Connection) -> None:
        raise ArithmeticError

    database = broker._database
    results = await asyncio.gather(
        database.write(defect), broker.publisher().publish([event("e", "g")]), return_exceptions=True
    )
    assert [type(result) for result in results] == [BrokerUnavailable, BrokerUnavailable]
    died = [task for task in broker.background() if task.done()]
    assert [type(task.exception()) for task in died] == [ArithmeticError]


@pytest.mark.parametrize(
    "wrong",
    [{"check_deadline_s": 31.0}, {"check_deadline_s": 0.0}, {"check_max": 0}, {"group_max": 0}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        EmbeddedSettings(**wrong)  # type: ignore[arg-type]


def held_file(folder: Path) -> sqlite3.Connection:
    """Somebody else's open write transaction."""
    holder = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    return holder
