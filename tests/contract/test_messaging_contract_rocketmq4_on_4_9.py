"""A broker of RocketMQ 4.9.7 by the classic protocol: the stories in which it might differ from 5.4.0, on which all are
told, and one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from service.ports.messaging import Topic, TopicType
from tests.contract import test_messaging_contract_rocketmq4 as on_5
from tests.contract.messaging import (
    DelayStories,
    DeliveryStories,
    FifoStories,
    HalfMessageStories,
    KillStories,
    Suite,
    TopicStories,
)
from tests.contract.messaging_aside import AsideStories
from tests.contract.messaging_stage import Stage, TransportFactory
from tests.servers import install
from tests.servers.rocketmq import RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(replace(on_5.OPTIONS, release=install.ROCKETMQ_4))
        stack.callback(broker.stop)
        broker.start()
        yield broker


class _On49(Suite):
    @pytest.fixture
    async def transport_factory(self, broker: RocketMQ) -> AsyncIterator[TransportFactory]:
        factory = on_5.RocketMQ4Factory(broker)
        yield factory
        await factory.close()


class TestRocketMQ49HalfMessages(_On49):
    test_a_half_message_is_invisible_until_it_is_committed = (
        HalfMessageStories.test_a_half_message_is_invisible_until_it_is_committed
    )
    test_an_unknown_end_is_asked_about_and_ended_by_the_answer = (
        HalfMessageStories.test_an_unknown_end_is_asked_about_and_ended_by_the_answer
    )
    test_another_process_answers_for_one_that_is_gone = (
        HalfMessageStories.test_another_process_answers_for_one_that_is_gone
    )
    test_a_half_message_is_refused_where_it_does_not_belong = (
        HalfMessageStories.test_a_half_message_is_refused_where_it_does_not_belong
    )
    test_the_questions_end_at_the_limit_and_the_message_is_kept_until_resumed = (
        AsideStories.test_the_questions_end_at_the_limit_and_the_message_is_kept_until_resumed
    )
    test_the_backlog_counts_halves_and_what_is_not_acknowledged = (
        on_5.TestRocketMQ4Topics.test_the_backlog_counts_halves_and_what_is_not_acknowledged
    )


class TestRocketMQ49Delivery(_On49):
    _dead = DeliveryStories._dead
    test_attempts_are_counted_until_the_group_gives_up = (
        DeliveryStories.test_attempts_are_counted_until_the_group_gives_up
    )
    test_dead_letters_that_are_dealt_with_are_not_listed_again_by_anybody = (
        AsideStories.test_dead_letters_that_are_dealt_with_are_not_listed_again_by_anybody
    )
    test_a_delayed_message_comes_neither_early_nor_late = (
        DelayStories.test_a_delayed_message_comes_neither_early_nor_late
    )
    test_a_retry_holds_up_its_group_and_no_other = FifoStories.test_a_retry_holds_up_its_group_and_no_other


class TestRocketMQ49Topics(_On49):
    test_a_message_of_another_type_is_refused = TopicStories.test_a_message_of_another_type_is_refused
    test_an_unknown_topic_or_group_is_refused = TopicStories.test_an_unknown_topic_or_group_is_refused

    async def test_a_topic_without_a_type_and_a_group_without_an_order_lack_nothing(self, stage: Stage) -> None:
        fresh = Topic(name=f"fresh-{stage.id}", type=TopicType.FIFO, group=f"fresh-readers-{stage.id}")
        (sentence,) = await stage.transport.missing([stage.order, fresh, stage.delay])
        assert fresh.name in sentence
        await stage.transport.create_topics([fresh])
        assert await stage.transport.missing([stage.order, fresh, stage.delay]) == []


@pytest.mark.faults
class TestRocketMQ49Killed(_On49):
    test_killed_after_the_half_message_it_is_asked_about_at_an_idle_process = (
        KillStories.test_killed_after_the_half_message_it_is_asked_about_at_an_idle_process
    )
