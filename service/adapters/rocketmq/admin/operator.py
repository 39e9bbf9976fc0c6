"""The port's half that needs no client package: topics, backlog, and what was put aside, asked of the brokers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from service.adapters.rocketmq.admin.backlog import BacklogDesk
from service.adapters.rocketmq.admin.dead_letters import DeadLetterDesk
from service.adapters.rocketmq.admin.discarded import DiscardedDesk
from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.admin.topics import TopicDesk
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.signing import Credentials
from service.domain.errors import BrokerUnavailable
from service.ports.messaging import Backlog, DeadLetter, DiscardedHalf, Topic

LOOK_MAX = 1000
"""Discarded half messages, or dead letters, that one look returns at most: a page, not the topic."""


class Operator:
    """What a transport of RocketMQ begins with. `setting` names where the name servers are set, for people."""

    def __init__(self, settings: AdminSettings, *, setting: str) -> None:
        self._at, self._setting, self._within_s = settings.name_servers, setting, settings.admin_timeout_s
        self.client = RemotingClient(_remoting_options(settings))
        self.cluster = Cluster(self.client, settings.name_servers)
        self.topics = TopicDesk(self.cluster, settings)
        self._backlog = BacklogDesk(self.client, self.cluster, settings)
        self._discarded = DiscardedDesk(self.client, self.cluster, settings)
        self._dead_letters = DeadLetterDesk(self.client, self.cluster, settings)

    async def create_topics(self, topics: Sequence[Topic]) -> None:
        await self.topics.create(topics)

    async def missing(self, topics: Sequence[Topic]) -> Sequence[str]:
        """Within the time of one admin request, as `/readyz` waits no longer."""
        behind = f"RocketMQ behind the name server {self._at}"
        remedy = f"look whether it runs, and at {self._setting}"
        try:
            async with asyncio.timeout(self._within_s):
                return await self.not_as_wanted(topics)
        except TimeoutError:
            raise BrokerUnavailable(self._at, f"{behind} does not answer", remedy) from None
        except BrokerUnavailable as error:
            said = f"{error.what}: {error.why}"
            raise BrokerUnavailable(self._at, f"{behind} cannot be asked ({said})", remedy) from error

    async def not_as_wanted(self, topics: Sequence[Topic]) -> Sequence[str]:
        """One sentence each, with the remedy. A transport adds its own."""
        return await self.topics.not_as_wanted(topics)

    async def backlog(self, topic: str, group: str) -> Backlog:
        return await self._backlog.look(topic, group)

    async def discarded(self, limit: int = LOOK_MAX) -> Sequence[DiscardedHalf]:
        return await self._discarded.look(min(limit, LOOK_MAX))

    async def forget_discarded(self, message_id: str) -> None:
        await self._discarded.forget(message_id)

    async def resume_discarded(self, message_id: str) -> None:
        await self._discarded.resume(message_id)

    async def dead_letters(self, group: str, limit: int = LOOK_MAX) -> Sequence[DeadLetter]:
        return await self._dead_letters.look(group, min(limit, LOOK_MAX))

    async def forget_dead_letter(self, group: str, message_id: str) -> None:
        await self._dead_letters.forget(group, message_id)


def _remoting_options(settings: AdminSettings) -> RemotingOptions:
    credentials = None
    if settings.access_key:
        credentials = Credentials(access_key=settings.access_key, secret_key=settings.secret_key)
    tls = ssl.create_default_context(cafile=settings.tls_ca) if settings.admin_tls else None
    return RemotingOptions(timeout_s=settings.admin_timeout_s, tls=tls, credentials=credentials)
