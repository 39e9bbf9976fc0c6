"""Half messages that the broker asks about no more: those of all producers together lie in one topic of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.adapters.rocketmq.admin.cursor import TopicCursor
from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import DISCARDED_TOPIC, Cluster
from service.adapters.rocketmq.remoting.messages import CHECK_TIMES, StoredMessage
from service.domain.errors import BrokerRefused
from service.ports.messaging import DiscardedHalf


class DiscardedDesk:
    """`message_id` is the physical one: to look at it and to resume it, the broker wants no other."""

    def __init__(self, client: RemotingClient, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._cursor = TopicCursor(
            client,
            cluster,
            topic=DISCARDED_TOPIC,
            group=settings.full(f"{settings.prefix}-discarded"),
            scan_max=settings.aside_scan_max,
            is_ours=lambda message: settings.sends_halves_to(message.real_topic),
        )
        self._resuming = asyncio.Lock()

    async def look(self, limit: int) -> Sequence[DiscardedHalf]:
        return list(map(self._half, await self._cursor.open(limit)))

    async def forget(self, message_id: str) -> None:
        await self._cursor.done(message_id)

    async def resume(self, message_id: str) -> None:
        """The broker asks with its next scan: the message is older than the transaction time-out."""
        async with self._resuming:
            if await self._cursor.find(message_id) is None:
                nothing = "no discarded half message of ours has this id, or it is dealt with: list them again"
                raise BrokerRefused(message_id, nothing)
            await self._cluster.resume_check(message_id)
            await self._cursor.done(message_id)

    def _half(self, message: StoredMessage) -> DiscardedHalf:
        return DiscardedHalf(
            message_id=message.physical_id,
            topic=self._settings.short(message.real_topic),
            key=message.key,
            body=message.body,
            checks=int(message.properties.get(CHECK_TIMES, "0")),
            born_at_ms=message.born_at_ms,
            discarded_at_ms=message.stored_at_ms,
        )
