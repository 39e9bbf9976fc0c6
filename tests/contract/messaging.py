"""The stories every transport must tell alike: it subclasses the suites with its `transport_factory` fixture."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused
from service.ports.messaging import Dead, DeadLetter, Done, OutgoingMessage, RetryAfter, Topic, TopicType
from tests.contract.messaging_stage import (
    CheckBook,
    JumpingFactory,
    Stage,
    TransportFactory,
    collect,
    eventually,
    keys,
)

MINUTE_MS = 60_000


class Suite:
    @pytest.fixture
    async def stage(self, transport_factory: TransportFactory) -> Stage:
        stage = Stage(transport_factory, await transport_factory.open())
        await stage.set_up()
        return stage


class HalfMessageStories(Suite):
    async def test_a_half_message_is_invisible_until_it_is_committed(self, stage: Stage) -> None:
        consumer, producer = await stage.consumer(stage.order), await stage.producer()
        may_end = asyncio.Event()

        async def decide() -> Verdict:
            await may_end.wait()
            return Verdict.COMMIT

        sending = asyncio.create_task(producer.transact(stage.message("held"), decide))
        assert await stage.seen_until_marker(producer, consumer) == []
        may_end.set()
        assert await sending is Verdict.COMMIT
        (delivery,) = await collect(consumer, 1, stage.traits.patience_s)
        assert (delivery.key, delivery.body, delivery.attempt) == ("held", b"body of held", 1)
        assert delivery.properties["name"] == "held"

    async def test_what_is_rolled_back_is_never_seen(self, stage: Stage) -> None:
        consumer, checks = await stage.consumer(stage.order), CheckBook()
        producer = await stage.producer(checks)
        assert await stage.transact(producer, "gone", Verdict.ROLLBACK) is Verdict.ROLLBACK
        # Another one that is asked about: by then the first would have been, too.
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        await eventually(lambda: "doubt" in checks.asked_keys(), stage.traits.patience_s)
        assert "gone" not in checks.asked_keys()
        assert await stage.seen_until_marker(producer, consumer) == []

    @pytest.mark.parametrize(("answer", "seen"), [(Verdict.COMMIT, ["doubt"]), (Verdict.ROLLBACK, [])])
    async def test_an_unknown_end_is_asked_about_and_ended_by_the_answer(
        self, stage: Stage, answer: Verdict, seen: list[str]
    ) -> None:
        consumer, checks = await stage.consumer(stage.order), CheckBook({"doubt": answer})
        producer = await stage.producer(checks)
        sent_at = time.monotonic()
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        await eventually(lambda: bool(checks.asked), stage.traits.patience_s)
        assert time.monotonic() - sent_at >= stage.traits.first_check_s
        request = checks.asked[0]
        assert (request.topic, request.key, request.body) == (stage.order.name, "doubt", b"body of doubt")
        await eventually(lambda: no_halves(stage), stage.traits.patience_s)
        assert await stage.seen_until_marker(producer, consumer) == seen
        assert checks.asked_keys() == ["doubt"]

    async def test_a_decision_that_raises_passes_through_and_is_asked_about(self, stage: Stage) -> None:
        consumer, checks = await stage.consumer(stage.order), CheckBook({"broken": Verdict.COMMIT})
        producer = await stage.producer(checks)

        async def decide() -> Verdict:
            raise ArithmeticError

        with pytest.raises(ArithmeticError):
            await producer.transact(stage.message("broken"), decide)
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["broken"]
        assert checks.asked_keys() == ["broken"]

    async def test_another_process_answers_for_one_that_is_gone(
        self, stage: Stage, transport_factory: TransportFactory
    ) -> None:
        gone, other = await transport_factory.open(), await transport_factory.open()
        unused, checks = CheckBook(), CheckBook({"orphan": Verdict.COMMIT})
        await stage.transact(await stage.producer(unused, on=gone), "orphan", Verdict.UNKNOWN)
        await gone.close()
        await stage.producer(checks, on=other)
        consumer = await stage.consumer(stage.order, on=other)
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["orphan"]
        assert (unused.asked_keys(), checks.asked_keys()) == ([], ["orphan"])

    async def test_one_answer_that_hangs_and_one_that_raises_hold_up_no_other(self, stage: Stage) -> None:
        async def hang() -> Verdict:
            await asyncio.Event().wait()
            return Verdict.COMMIT

        async def fail() -> Verdict:
            raise ArithmeticError

        others = [f"doubt-{n}" for n in range(10)]
        checks = CheckBook({"hangs": hang, "fails": fail, **dict.fromkeys(others, Verdict.COMMIT)})
        producer, consumer = await stage.producer(checks), await stage.consumer(stage.order)
        for key in ("hangs", "fails", *others):
            await stage.transact(producer, key, Verdict.UNKNOWN)
        assert sorted(keys(await collect(consumer, 10, stage.traits.patience_s))) == others
        # Neither is lost: both are asked about again.
        await eventually(
            lambda: min(checks.asked_keys().count(key) for key in ("hangs", "fails")) >= 2,
            stage.traits.patience_s,
        )

    @pytest.mark.parametrize(("answer", "copies"), [(Verdict.ROLLBACK, 1), (Verdict.COMMIT, 2)])
    async def test_a_commit_after_the_check_back_ended_it_is_still_honoured(
        self, stage: Stage, answer: Verdict, copies: int
    ) -> None:
        """F02: after ROLLBACK it is delivered, after COMMIT once more. Consumers must bear it."""
        consumer, checks = await stage.consumer(stage.order), CheckBook({"late": answer})
        producer = await stage.producer(checks)

        async def decide() -> Verdict:
            await eventually(lambda: bool(checks.asked), stage.traits.patience_s)
            await eventually(lambda: no_halves(stage), stage.traits.patience_s)
            return Verdict.COMMIT

        await producer.transact(stage.message("late"), decide)
        assert await stage.seen_until_marker(producer, consumer) == ["late"] * copies

    async def test_a_half_message_is_refused_where_it_does_not_belong(self, stage: Stage) -> None:
        called: list[str] = []

        async def decide() -> Verdict:
            called.append("decide")
            return Verdict.COMMIT

        with pytest.raises(BrokerRefused):
            await stage.transport.producer(stage.normal.name, CheckBook())
        producer = await stage.producer()
        delayed = OutgoingMessage(topic=stage.order.name, key="k", body=b"", deliver_at_ms=now_ms() + MINUTE_MS)
        with pytest.raises(BrokerRefused):
            await producer.transact(delayed, decide)
        assert called == []


class DeliveryStories(Suite):
    async def test_a_message_held_comes_again_after_its_invisible_time_and_not_before(self, stage: Stage) -> None:
        invisible_s = stage.traits.invisible_s
        consumer = await stage.consumer(stage.normal, invisible_s=invisible_s)
        await stage.publish(stage.normal, "held")
        (first,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
        held_at = time.monotonic()
        (second,) = await collect(consumer, 1, stage.traits.patience_s)
        assert time.monotonic() - held_at >= invisible_s * 0.9
        assert (first.attempt, second.attempt, second.key) == (1, 2, "held")

    async def test_a_retry_waits_its_delay_and_lets_others_pass(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.normal)
        await stage.publish(stage.normal, "waits", "passes")
        held = {d.key: d for d in await collect(consumer, 2, stage.traits.patience_s, done=False)}
        await consumer.settle(held["waits"], RetryAfter(delay_s=stage.traits.retry_s, why="not now"))
        waits_since = time.monotonic()
        await consumer.settle(held["passes"], Done())
        (again,) = await collect(consumer, 1, stage.traits.patience_s)
        assert time.monotonic() - waits_since >= stage.traits.retry_s * 0.9
        assert (again.key, again.attempt) == ("waits", 2)

    async def test_attempts_are_counted_until_the_group_gives_up(self, stage: Stage) -> None:
        few = stage.topic(TopicType.NORMAL, group=f"impatient-{stage.id}", max_attempts=3)
        await stage.transport.create_topics([few])
        consumer = await stage.consumer(few)
        await stage.publish(few, "poison")
        attempts = []
        for _ in range(3):
            (delivery,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
            attempts.append(delivery.attempt)
            await consumer.settle(delivery, RetryAfter(delay_s=stage.traits.retry_s, why="still broken"))
        assert attempts == [1, 2, 3]
        letter = await self._dead(stage, few, "poison")
        assert letter.attempts == 3

    async def test_what_is_declared_dead_goes_to_the_dead_letters_at_once(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.normal)
        await stage.publish(stage.normal, "undecodable")
        (delivery,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
        await consumer.settle(delivery, Dead(why="no such schema"))
        letter = await self._dead(stage, stage.normal, "undecodable")
        assert letter.attempts == 1
        assert letter.why in {"no such schema", None}
        assert letter.born_at_ms == delivery.born_at_ms <= letter.dead_at_ms

    async def _dead(self, stage: Stage, topic: Topic, key: str) -> DeadLetter:
        """In the dead letters, and not delivered while another message is."""
        consumer = await stage.consumer(topic)

        async def is_dead() -> bool:
            assert await consumer.receive(1, 0.01) == []
            return [letter.key for letter in await stage.dead_letters(topic)] == [key]

        await eventually(is_dead, stage.traits.patience_s)
        await stage.publish(topic, "next")
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["next"]
        (letter,) = await stage.dead_letters(topic)
        assert (letter.group, letter.topic, letter.body) == (topic.group, topic.name, f"body of {key}".encode())
        return letter

    async def test_competing_consumers_share_a_group_and_no_message_goes_to_two(
        self, stage: Stage, transport_factory: TransportFactory
    ) -> None:
        other = await transport_factory.open()
        consumers = [await stage.consumer(stage.normal), await stage.consumer(stage.normal, on=other)]
        expected = [f"m{n}" for n in range(60)]
        seen: Counter[str] = Counter()

        async def work(n: int) -> None:
            while seen.total() < len(expected):
                for delivery in await consumers[n].receive(4, 0.1):
                    seen[delivery.key] += 1
                    await consumers[n].settle(delivery, Done())

        await stage.publish(stage.normal, *expected)
        async with asyncio.timeout(stage.traits.patience_s):
            await asyncio.gather(work(0), work(1))
        assert seen == Counter(expected)

    async def test_each_group_gets_every_message(self, stage: Stage) -> None:
        second = stage.topic(TopicType.NORMAL, group=f"second-{stage.id}")
        await stage.transport.create_topics([second])
        await stage.publish(stage.normal, "a", "b")
        for topic in (stage.normal, second):
            consumer = await stage.consumer(topic)
            assert sorted(keys(await collect(consumer, 2, stage.traits.patience_s))) == ["a", "b"]

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_a_consumer_that_waits_is_woken_by_a_message(
        self, stage: Stage, transport_factory: TransportFactory, elsewhere: bool
    ) -> None:
        consumer = await stage.consumer(
            stage.normal, on=await transport_factory.open() if elsewhere else stage.transport
        )
        producer, other = await stage.producer(), await stage.consumer(stage.order)
        waiting = asyncio.create_task(consumer.receive(1, stage.traits.patience_s))
        # Something else goes to and fro meanwhile, so that the consumer has looked and waits.
        await stage.transact(producer, "sold", Verdict.COMMIT)
        assert keys(await collect(other, 1, stage.traits.patience_s)) == ["sold"]
        await stage.publish(stage.normal, "hello")
        assert keys(await waiting) == ["hello"]

    async def test_closing_ends_a_receive_that_waits(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.normal)
        waiting = asyncio.create_task(consumer.receive(1, 3600.0))
        await asyncio.sleep(0)
        await consumer.close()
        async with asyncio.timeout(stage.traits.patience_s):
            assert await waiting == []

    async def test_what_a_closed_consumer_held_comes_again(self, stage: Stage) -> None:
        first = await stage.consumer(stage.normal, invisible_s=stage.traits.invisible_s)
        await stage.publish(stage.normal, "held")
        await collect(first, 1, stage.traits.patience_s, done=False)
        await first.close()
        second = await stage.consumer(stage.normal)
        (again,) = await collect(second, 1, stage.traits.patience_s)
        assert (again.key, again.attempt) == ("held", 2)


class FifoStories(Suite):
    async def test_a_batch_comes_in_the_order_in_which_it_was_published(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.fifo)
        expected = [f"e{n:02}" for n in range(20)]
        await stage.publish(stage.fifo, *expected, fifo_group="one")
        assert keys(await collect(consumer, 20, stage.traits.patience_s)) == expected

    async def test_a_retry_holds_up_its_group_and_no_other(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.fifo)
        await stage.publish(stage.fifo, "a1", "a2", "a3", fifo_group="a")
        await stage.publish(stage.fifo, "b1", fifo_group="b")
        finished: list[str] = []
        async with asyncio.timeout(stage.traits.patience_s):
            while len(finished) < 4:
                for delivery in await consumer.receive(8, 1.0):
                    if delivery.key == "a1" and delivery.attempt == 1:
                        await consumer.settle(delivery, RetryAfter(delay_s=stage.traits.retry_s, why="not yet"))
                    else:
                        finished.append(delivery.key)
                        await consumer.settle(delivery, Done())
        assert finished == ["b1", "a1", "a2", "a3"]

    async def test_one_message_of_a_group_is_held_at_a_time(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.fifo)
        await stage.publish(stage.fifo, "a1", "a2", fifo_group="a")
        (held,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
        await stage.publish(stage.fifo, "b1", fifo_group="b")
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["b1"]
        await consumer.settle(held, Done())
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["a2"]

    async def test_a_dead_letter_lets_its_group_go_on(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.fifo)
        await stage.publish(stage.fifo, "a1", "a2", fifo_group="a")
        (poison,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
        await consumer.settle(poison, Dead(why="poison"))
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["a2"]


class DelayStories(Suite):
    async def test_a_delayed_message_comes_neither_early_nor_late(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.delay)
        due_ms = now_ms() + round(stage.traits.delay_s * 1000)
        await stage.publish(stage.delay, "later", deliver_at_ms=due_ms)
        await collect(consumer, 1, stage.traits.patience_s)
        assert 0 <= now_ms() - due_ms <= stage.traits.delay_tolerance_s * 1000

    async def test_a_time_that_is_past_means_at_once(self, stage: Stage) -> None:
        consumer = await stage.consumer(stage.delay)
        await stage.publish(stage.delay, "overdue", deliver_at_ms=now_ms() - MINUTE_MS)
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["overdue"]


class TimeJumpStories(Suite):
    """For a broker whose clock is ours."""

    async def test_fifteen_minutes_pass_under_a_waiting_consumer(
        self, stage: Stage, transport_factory: JumpingFactory
    ) -> None:
        consumer = await stage.consumer(stage.delay)
        await stage.publish(stage.delay, "payment-timeout", deliver_at_ms=now_ms() + 15 * MINUTE_MS)
        await stage.publish(stage.delay, "overdue", deliver_at_ms=now_ms())
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["overdue"]
        waiting = asyncio.create_task(consumer.receive(8, stage.traits.patience_s))
        await transport_factory.jump(15 * 60.0)
        assert keys(await waiting) == ["payment-timeout"]


class TopicStories(Suite):
    async def test_a_message_of_another_type_is_refused(self, stage: Stage) -> None:
        later = now_ms() + MINUTE_MS
        for topic, fifo_group, deliver_at_ms in (
            (stage.order, None, None),
            (stage.delay, None, None),
            (stage.fifo, None, None),
            (stage.normal, "group", None),
            (stage.normal, None, later),
            (stage.fifo, "group", later),
        ):
            with pytest.raises(BrokerRefused):
                await stage.publish(topic, "wrong", fifo_group=fifo_group, deliver_at_ms=deliver_at_ms)

    async def test_an_unknown_topic_or_group_is_refused(self, stage: Stage) -> None:
        unknown = Topic(name=f"no-such-topic-{stage.id}", type=TopicType.NORMAL, group="nobody")
        with pytest.raises(BrokerRefused):
            await stage.publish(unknown, "lost")
        with pytest.raises(BrokerRefused):
            await stage.consumer(unknown)
        with pytest.raises(BrokerRefused):
            await stage.transport.consumer(stage.normal.name, f"no-such-group-{stage.id}", invisible_s=60)
        with pytest.raises(BrokerRefused):
            await stage.transport.producer(unknown.name, CheckBook())

    async def test_what_is_missing_is_said_with_its_name_and_made(self, stage: Stage) -> None:
        fresh = Topic(name=f"fresh-{stage.id}", type=TopicType.DELAY, group=f"fresh-readers-{stage.id}")
        more = Topic(name=stage.normal.name, type=TopicType.NORMAL, group=f"more-readers-{stage.id}")
        wrong = Topic(name=stage.fifo.name, type=TopicType.DELAY, group=stage.fifo.group)
        sentences = await stage.transport.missing([stage.order, fresh, more, wrong])
        assert [name in sentence for name, sentence in zip(
            (fresh.name, more.group or "", wrong.name), sentences, strict=True
        )] == [True, True, True]  # fmt: skip
        await stage.transport.create_topics([fresh, more, stage.order])
        assert await stage.transport.missing([stage.order, fresh, more]) == []

    async def test_the_backlog_counts_halves_and_what_is_not_acknowledged(self, stage: Stage) -> None:
        producer, consumer = await stage.producer(), await stage.consumer(stage.order)
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        await stage.transact(producer, "sold", Verdict.COMMIT)
        backlog = await stage.transport.backlog(stage.order.name, stage.order.group or "")
        assert (backlog.halves, backlog.undelivered) in {(1, 1), (None, None), (None, 1), (1, None)}
        await collect(consumer, 1, stage.traits.patience_s)
        backlog = await stage.transport.backlog(stage.order.name, stage.order.group or "")
        assert (backlog.halves, backlog.undelivered) in {(1, 0), (None, None), (None, 0), (1, None)}

    async def test_the_background_lives_as_long_as_the_transport(
        self, stage: Stage, transport_factory: TransportFactory
    ) -> None:
        transport = await transport_factory.open()
        tasks = transport.background()
        assert tasks
        assert not any(task.done() for task in tasks)
        await transport.close()
        assert all(task.done() for task in tasks)


@pytest.mark.faults
class KillStories(Suite):
    async def test_killed_after_the_half_message_it_is_asked_about_at_an_idle_process(self, stage: Stage) -> None:
        """F06: the one that starts afterwards sends nothing, and is asked."""
        await stage.run_victim("after_half", stage.order, "orphan")
        checks = CheckBook({"orphan": Verdict.COMMIT})
        reborn = await stage.factory.open()
        await stage.producer(checks, on=reborn)
        consumer = await stage.consumer(stage.order, on=reborn)
        (delivery,) = await collect(consumer, 1, stage.traits.patience_s)
        assert (delivery.key, delivery.body) == ("orphan", b"half")

    async def test_killed_after_the_commit_the_message_is_there(self, stage: Stage) -> None:
        await stage.run_victim("after_commit", stage.order, "sold")
        consumer = await stage.consumer(stage.order)
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["sold"]

    async def test_killed_before_it_settled_the_message_comes_again(self, stage: Stage) -> None:
        """F58."""
        await stage.publish(stage.normal, "held")
        assert await stage.run_victim("before_settle", stage.normal, "") == "held 1\n"
        consumer = await stage.consumer(stage.normal)
        (again,) = await collect(consumer, 1, stage.traits.patience_s)
        assert (again.key, again.attempt) == ("held", 2)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def no_halves(stage: Stage) -> bool:
    """Nothing is in doubt. A broker that cannot say is taken at the word of what it delivers."""
    backlog = await stage.transport.backlog(stage.order.name, stage.order.group or "")
    return not backlog.halves
