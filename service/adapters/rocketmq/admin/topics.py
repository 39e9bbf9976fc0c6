"""Topics and groups: made where they are missing, compared with what is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.remoting.admin import UNTYPED, BrokerAdmin, GroupSettings, TopicSettings
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.domain.errors import BrokerRefused
from service.ports.messaging import Topic, TopicType

MAKES = "`dropgate topics create` makes it"


@dataclass(frozen=True, kw_only=True)
class Found:
    """One broker's topics and groups."""

    broker: BrokerAdmin
    topics: Mapping[str, TopicSettings]
    groups: Mapping[str, GroupSettings]


class TopicDesk:
    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    async def look(self) -> Sequence[Found]:
        """Of every broker; at least one."""
        return await asyncio.gather(*map(self._look, await self._cluster.brokers()))

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
        orderly = topic.type is TopicType.FIFO
        there = found.groups.get(group)
        if there is None:
            await found.broker.create_group(group, retry_max=retry_max, orderly=orderly)
            return
        retry_max = retry_max if topic.group_is_ours else there.retry_max
        if there.retry_max != retry_max or there.orderly not in {orderly, None}:
            await found.broker.change_group(group, retry_max=retry_max, orderly=orderly)

    def _not_as_wanted(self, topic: Topic, found: Found) -> str | None:
        """One sentence with the remedy, or None."""
        at = f" at broker {found.broker.address}"
        known = found.topics.get(self._settings.full(topic.name))
        if known is None:
            return f"topic {topic.name} is missing{at}: {topic.made_by} makes it"
        if not _takes(known, topic):
            return f"topic {topic.name} is of type {known.type}{at}, not {topic.type}: use another topic prefix"
        if topic.group is None:
            return None
        group = found.groups.get(self._settings.full(topic.group))
        if group is None:
            return f"topic {topic.name} has no group {topic.group}{at}: {topic.made_by} makes it"
        attempts = group.retry_max + 1
        if topic.group_is_ours and attempts != topic.max_attempts:
            return (
                f"group {topic.group} of topic {topic.name} allows {attempts} attempts{at}, not "
                f"{topic.max_attempts}: {topic.made_by} sets it"
            )
        if topic.type is TopicType.FIFO and group.orderly is False:
            return (
                f"group {topic.group} of topic {topic.name} takes messages in any order{at} "
                f"(consumeMessageOrderly is false): {topic.made_by} sets it"
            )
        return None


def _takes(known: TopicSettings, topic: Topic) -> bool:
    return known.type in {topic.type.value, UNTYPED}
