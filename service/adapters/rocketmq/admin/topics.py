"""Topics and groups: made where they are missing, compared with what is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.remoting.admin import UNTYPED, BrokerAdmin, GroupSettings, TopicSettings
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.codes import RequestCode
from service.adapters.rocketmq.remoting.frames import Request
from service.domain.errors import BrokerRefused
from service.ports.messaging import Topic, TopicType

MAKES = "`dropgate topics create` makes it"


class _Group(msgspec.Struct, rename="camel"):
    """`consume_message_orderly`: without it the broker hands out a FIFO topic's messages in any order."""

    group_name: str
    retry_max_times: int
    consume_message_orderly: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """One broker's topics and groups."""

    broker: BrokerAdmin
    topics: Mapping[str, TopicSettings]
    groups: Mapping[str, GroupSettings]


class TopicDesk:
    def __init__(self, client: RemotingClient, cluster: Cluster, settings: AdminSettings) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings

    async def look(self) -> Sequence[Found]:
        """Of every broker; at least one."""
        name_servers, nobody = self._settings.name_servers, "no broker is registered there"
        try:
            brokers = await self._cluster.brokers()
        except BrokerRefused as error:
            raise BrokerRefused(name_servers, nobody) from error
        if not brokers:
            raise BrokerRefused(name_servers, nobody)
        return await asyncio.gather(*map(self._look, brokers))

    async def create(self, topics: Sequence[Topic]) -> None:
        """On every broker: what is there keeps its settings, but a group's attempts follow the code."""
        for found in await self.look():
            for topic in topics:
                await self._create(found, topic)

    async def not_as_wanted(self, topics: Sequence[Topic]) -> Sequence[str]:
        everywhere = await self.look()
        sentences = [self._not_as_wanted(topic, found) for topic in topics for found in everywhere]
        return list(dict.fromkeys(sentence for sentence in sentences if sentence is not None))

    async def require_group(self, topic: str, group: str) -> None:
        """The broker would make one by itself, with its own number of attempts."""
        for found in await self.look():
            if self._settings.full(group) not in found.groups:
                raise BrokerRefused(topic, f"it has no group {group}: {MAKES}")

    async def create_group(self, broker: BrokerAdmin, name: str, *, retry_max: int, orderly: bool = False) -> None:
        """`name` as the broker has it."""
        group = _Group(group_name=name, retry_max_times=retry_max, consume_message_orderly=orderly)
        request = Request(code=RequestCode.UPDATE_AND_CREATE_GROUP, body=msgspec.json.encode(group))
        await self._client.call(broker.address, request)

    async def _look(self, broker: BrokerAdmin) -> Found:
        topics, groups = await asyncio.gather(broker.topics(), broker.groups())
        return Found(broker=broker, topics=topics, groups=groups)

    async def _create(self, found: Found, topic: Topic) -> None:
        name = self._settings.full(topic.name)
        known = found.topics.get(name)
        if known is None:
            await found.broker.create_topic(name, topic.type, queues=self._settings.queues)
        elif not _takes(known, topic):
            raise BrokerRefused(topic.name, f"the topic is of type {known.type}, not {topic.type}")
        if topic.group is None:
            return
        group, retry_max = self._settings.full(topic.group), topic.max_attempts - 1
        there = found.groups.get(group)
        if there is None or there.retry_max != retry_max:
            orderly = topic.type is TopicType.FIFO
            await self.create_group(found.broker, group, retry_max=retry_max, orderly=orderly)

    def _not_as_wanted(self, topic: Topic, found: Found) -> str | None:
        """One sentence with the remedy, or None."""
        at = f" at broker {found.broker.address}"
        known = found.topics.get(self._settings.full(topic.name))
        if known is None:
            return f"topic {topic.name} is missing{at}: {MAKES}"
        if not _takes(known, topic):
            return f"topic {topic.name} is of type {known.type}{at}, not {topic.type}: use another topic prefix"
        if topic.group is None:
            return None
        group = found.groups.get(self._settings.full(topic.group))
        if group is None:
            return f"topic {topic.name} has no group {topic.group}{at}: {MAKES}"
        attempts = group.retry_max + 1
        if attempts != topic.max_attempts:
            return (
                f"group {topic.group} of topic {topic.name} allows {attempts} attempts{at}, not "
                f"{topic.max_attempts}: `dropgate topics create` sets it"
            )
        return None


def _takes(known: TopicSettings, topic: Topic) -> bool:
    return known.type in {topic.type.value, UNTYPED}
