"""What the remoting client asks a real broker about consumers, and has it do for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.consumers import DEAD_LEVEL, BrokerConsumers
from service.adapters.rocketmq.remoting.messages import StoredMessage, parse_physical_id
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.adapters.rocketmq.remoting.routes import NameServers
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import TopicType
from tests.contract.messaging_stage import eventually
from tests.fixtures.rocketmq_messages import send
from tests.servers.rocketmq import RocketMQ

PATIENT_S = 15.0
ONE_SECOND, FIVE_SECONDS = 1, 2
"""Levels of the broker's own list."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A topic and a group of a test's own."""

    rocketmq: RocketMQ
    client: RemotingClient
    topic: str
    group: str

    @property
    def consumers(self) -> BrokerConsumers:
        return BrokerConsumers(self.client, self.rocketmq.broker)

    @property
    def queues(self) -> BrokerQueues:
        return BrokerQueues(self.client, self.rocketmq.broker)

    async def sent(self) -> int:
        """A message's place in the commit log."""
        properties = {"KEYS": "k", "UNIQ_KEY": "u"}
        return parse_physical_id(
            await send(self.client, self.rocketmq.broker, self.topic, b"hello", properties=properties)
        )[1]

    async def copies(self, topic: str) -> list[StoredMessage]:
        try:
            return list((await self.queues.pull(topic, 0, 0, 32)).messages)
        except BrokerRefused:  # there is none yet
            return []

    async def copy(self, topic: str, *, after: int = -1) -> StoredMessage:
        """The next that comes there, after this place of the commit log."""

        async def found() -> list[StoredMessage]:
            return [it for it in await self.copies(topic) if it.offset > after]

        async def is_there() -> bool:
            return await found() != []

        await eventually(is_there, PATIENT_S)
        (one,) = await found()
        return one


@pytest.fixture
async def place(rocketmq: RocketMQ) -> AsyncIterator[Place]:
    client = RemotingClient(RemotingOptions(timeout_s=PATIENT_S))
    id_ = uuid4().hex[:12]
    place = Place(rocketmq=rocketmq, client=client, topic=f"consumers-{id_}", group=f"group-{id_}")
    admin = BrokerAdmin(client, rocketmq.broker)
    await admin.create_topic(place.topic, TopicType.NORMAL, queues=1)
    await admin.create_group(place.group, retry_max=2)
    yield place
    await client.close()


async def test_a_group_in_which_nobody_consumes_has_no_members(place: Place) -> None:
    assert await place.consumers.members(place.group) is None


async def test_a_client_that_is_not_there_cannot_be_asked(place: Place) -> None:
    with pytest.raises(BrokerUnavailable):
        await place.consumers.states(place.group, "127.0.0.1@1#nobody")


async def test_a_message_sent_back_comes_to_the_groups_retries_after_its_delay(place: Place) -> None:
    offset = await place.sent()
    await place.consumers.send_back(place.group, place.topic, offset, ONE_SECOND)
    copy = await place.copy(f"%RETRY%{place.group}")
    assert (copy.reconsumed, copy.body, copy.key) == (1, b"hello", "k")
    assert copy.properties["RETRY_TOPIC"] == place.topic
    assert (await place.queues.view(offset)) is not None, "the first stays where it was"


async def test_a_message_sent_back_once_too_often_is_a_dead_letter(place: Place) -> None:
    """By the group's own number of attempts, as the request names none."""
    offset = await place.sent()
    for _ in range(2):
        await place.consumers.send_back(place.group, place.topic, offset, ONE_SECOND)
        offset = (await place.copy(f"%RETRY%{place.group}", after=offset)).offset
    await place.consumers.send_back(place.group, place.topic, offset, FIVE_SECONDS)
    letter = await place.copy(f"%DLQ%{place.group}")
    assert (letter.reconsumed, letter.key) == (3, "k")


async def test_a_message_may_be_a_dead_letter_at_once(place: Place) -> None:
    await place.consumers.send_back(place.group, place.topic, await place.sent(), DEAD_LEVEL)
    letter = await place.copy(f"%DLQ%{place.group}")
    assert (letter.reconsumed, letter.body) == (1, b"hello")


async def test_where_no_message_lies_none_is_sent_back(place: Place) -> None:
    with pytest.raises(BrokerUnavailable):
        await place.consumers.send_back(place.group, place.topic, 1 << 40, ONE_SECOND)


async def test_the_topic_of_retries_is_made_before_there_is_one(place: Place) -> None:
    names, retries = NameServers(place.client, place.rocketmq.name_server), f"%RETRY%{place.group}"
    with pytest.raises(BrokerRefused):
        await names.route(retries)
    for _ in range(2):
        await place.consumers.make_retries(place.group, place.topic)
    (part,) = await names.route(retries)
    assert part.address == place.rocketmq.broker
    assert await place.copies(retries) == []
