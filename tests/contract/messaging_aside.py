"""Stories of what a broker puts aside: half messages that it asks about no more, and dead letters."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused
from service.ports.messaging import Dead, DeadLetter, DiscardedHalf, Transport
from tests.contract.messaging import Suite
from tests.contract.messaging_stage import CheckBook, Stage, TransportFactory, collect, eventually, keys


class AsideStories(Suite):
    async def test_the_questions_end_at_the_limit_and_the_message_is_kept_until_resumed(self, stage: Stage) -> None:
        consumer, checks = await stage.consumer(stage.order), CheckBook()
        producer = await stage.producer(checks)
        await stage.transact(producer, "nobody-knows", Verdict.UNKNOWN)
        half = await discarded(stage, checks)
        assert (half.key, half.body, half.checks) == ("nobody-knows", b"body of nobody-knows", stage.traits.check_max)
        assert half.born_at_ms < half.discarded_at_ms
        assert await stage.seen_until_marker(producer, consumer) == []

        checks.asked.clear()
        checks.answers["nobody-knows"] = Verdict.COMMIT
        await stage.transport.resume_discarded(half.message_id)
        assert await stage.discarded() == []
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["nobody-knows"]
        assert [request.check for request in checks.asked] == [1]
        with pytest.raises(BrokerRefused):
            await stage.transport.resume_discarded(half.message_id)
        assert await stage.seen_until_marker(producer, consumer) == []

    async def test_one_that_nobody_knows_after_it_was_resumed_is_listed_again(self, stage: Stage) -> None:
        checks = CheckBook()
        await stage.transact(await stage.producer(checks), "nobody-knows", Verdict.UNKNOWN)
        await stage.transport.resume_discarded((await discarded(stage, checks)).message_id)
        checks.asked.clear()
        again = await discarded(stage, checks)
        assert (again.key, again.body, again.checks) == (
            "nobody-knows",
            b"body of nobody-knows",
            stage.traits.check_max,
        )
        await stage.transport.forget_discarded(again.message_id)
        assert await stage.discarded() == []

    async def test_resumed_by_two_processes_at_once_it_is_committed_and_listed_by_none(
        self, stage: Stage, transport_factory: TransportFactory
    ) -> None:
        """The second may be too late, or have it asked about and delivered twice."""
        consumer, checks = await stage.consumer(stage.order), CheckBook()
        producer = await stage.producer(checks)
        await stage.transact(producer, "twice", Verdict.UNKNOWN)
        half = await discarded(stage, checks)
        checks.answers["twice"] = Verdict.COMMIT
        both = (stage.transport, await transport_factory.open())

        async def resume(transport: Transport) -> bool:
            try:
                await transport.resume_discarded(half.message_id)
            except BrokerRefused:
                return False
            return True

        assert any(await asyncio.gather(*map(resume, both)))
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["twice"]
        assert await stage.seen_until_marker(producer, consumer) in ([], ["twice"])
        assert [await stage.discarded(on=transport) for transport in both] == [[], []]

    async def test_what_is_no_discarded_half_message_is_not_resumed(self, stage: Stage) -> None:
        producer, consumer = await stage.producer(), await stage.consumer(stage.order)
        (letter,) = await dead_letters(stage, "poison")
        for message_id in (letter.message_id, "no-such-id", "00" * 16, ""):
            with pytest.raises(BrokerRefused):
                await stage.transport.resume_discarded(message_id)
        assert await stage.seen_until_marker(producer, consumer) == []

    async def test_dead_letters_that_are_dealt_with_are_not_listed_again_by_anybody(
        self, stage: Stage, transport_factory: TransportFactory
    ) -> None:
        first, second, third = await dead_letters(stage, "a", "b", "c")
        assert [it.message_id for it in await stage.transport.dead_letters(first.group, 2)] == [
            first.message_id,
            second.message_id,
        ]
        other = await transport_factory.open()
        assert len(await stage.dead_letters(stage.normal, on=other)) == 3
        for _ in range(2):  # the second time it is not there, and left alone
            await stage.transport.forget_dead_letter(first.group, first.message_id)
        assert await stage.dead_letters(stage.normal, on=other) == [second, third]
        await other.forget_dead_letter(first.group, third.message_id)
        assert await stage.dead_letters(stage.normal, on=other) == [second]
        await other.forget_dead_letter(first.group, second.message_id)
        await other.close()
        assert await stage.dead_letters(stage.normal, on=await transport_factory.open()) == []
        assert await stage.dead_letters(stage.normal) == []

    async def test_a_group_has_its_own_dead_letters_and_no_id_reaches_those_of_another(self, stage: Stage) -> None:
        (letter,) = await dead_letters(stage, "poison")
        assert await stage.dead_letters(stage.fifo) == []
        for group, message_id in (
            (stage.fifo.group or "", letter.message_id),
            (letter.group, "no-such-id"),
            (letter.group, f"{letter.message_id}0"),
        ):
            await stage.transport.forget_dead_letter(group, message_id)
        assert await stage.dead_letters(stage.normal) == [letter]


async def discarded(stage: Stage, checks: CheckBook) -> DiscardedHalf:
    """This test's one, once its last question has come: a broker may discard while it still asks."""

    async def is_discarded() -> bool:
        return len(checks.asked) == stage.traits.check_max and len(await stage.discarded()) == 1

    await eventually(is_discarded, stage.traits.patience_s * 2)
    assert [request.check for request in checks.asked] == list(range(1, stage.traits.check_max + 1))
    (half,) = await stage.discarded()
    return half


async def dead_letters(stage: Stage, *names: str) -> list[DeadLetter]:
    """In this order."""
    consumer = await stage.consumer(stage.normal)
    for name in names:
        await stage.publish(stage.normal, name)
        (delivery,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
        await consumer.settle(delivery, Dead(why="poison"))

    async def are_listed() -> bool:
        return [letter.key for letter in await stage.dead_letters(stage.normal)] == list(names)

    await eventually(are_listed, stage.traits.patience_s)
    return list(await stage.dead_letters(stage.normal))
