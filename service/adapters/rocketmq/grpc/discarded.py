"""Half messages that the broker asks about no more, and how far they are dealt with.

They lie in a topic of the broker, those of all producers together. How far ours are dealt with is the offset of a group
of ours there: it survives restarts, and all processes share it. It moves over a run of messages that are dealt with or
not ours; what is dealt with beyond the first that is not is remembered here, and listed again by another process or
after a restart, which finds it ended. So nothing is ever skipped, and one that cannot be decided hides no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.topics import TopicDesk
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import DISCARDED_TOPIC, Cluster
from service.adapters.rocketmq.remoting.codes import ResponseCode
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.errors import BrokerRefused
from service.ports.messaging import DiscardedHalf

PULL_MAX = 32
REAL_TOPIC, KEYS, CHECK_TIMES = "REAL_TOPIC", "KEYS", "TRANSACTION_CHECK_TIMES"
KEY_END = " "


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What lies in one broker's queue from our offset on."""

    start: int
    messages: Sequence[StoredMessage]


class DiscardedDesk:
    def __init__(self, client: RemotingClient, cluster: Cluster, desk: TopicDesk, settings: GrpcSettings) -> None:
        self._client = client
        self._cluster = cluster
        self._desk = desk
        self._settings = settings
        self._group = settings.full(f"{settings.prefix}-discarded")
        self._done: set[str] = set()
        """Physical ids beyond our offset; those that it passes are dropped."""

    async def look(self, limit: int) -> Sequence[DiscardedHalf]:
        """Oldest first. Others' messages at the head are passed over for good, so that they never fill the scan."""
        found: list[StoredMessage] = []
        for queues in await self._brokers():
            seen = await self._seen(queues)
            await self._advance(queues, seen)
            found += [message for message in seen.messages if self._is_open(message)]
        found.sort(key=lambda message: message.stored_at_ms)
        return [self._half(message) for message in found[:limit]]

    async def forget(self, message_id: str) -> None:
        self._done.add(message_id)
        for queues in await self._brokers():
            seen = await self._seen(queues)
            if any(message.physical_id == message_id for message in seen.messages):
                await self._advance(queues, seen)
                return
        self._done.discard(message_id)

    async def _brokers(self) -> Sequence[BrokerQueues]:
        return [BrokerQueues(self._client, address) for address in await self._cluster.name_servers.masters()]

    async def _seen(self, queues: BrokerQueues) -> _Seen:
        """Up to `discarded_scan_max` messages. The broker makes the topic with the first one that it discards."""
        start = at = await self._offset(queues)
        found: list[StoredMessage] = []
        while len(found) < self._settings.discarded_scan_max:
            try:
                pulled = await queues.pull(DISCARDED_TOPIC, 0, at, PULL_MAX)
            except BrokerRefused as refused:
                if not found and _says(refused, ResponseCode.TOPIC_NOT_EXIST):
                    break
                raise
            found += pulled.messages
            if pulled.next_offset <= at or pulled.next_offset >= pulled.offsets.end:
                break
            at = pulled.next_offset
        return _Seen(start=start, messages=found)

    async def _offset(self, queues: BrokerQueues) -> int:
        return await queues.consumer_offset(self._group, DISCARDED_TOPIC, 0) or 0

    async def _advance(self, queues: BrokerQueues, seen: _Seen) -> None:
        to = seen.start
        for message in seen.messages:
            if self._is_open(message):
                break
            to = message.queue_offset + 1
            self._done.discard(message.physical_id)
        if to > seen.start:
            await self._keep(queues, to)

    async def _keep(self, queues: BrokerQueues, offset: int) -> None:
        """Another process may have come further meanwhile: the offset never goes back."""
        if offset <= await self._offset(queues):
            return
        try:
            await queues.set_consumer_offset(self._group, DISCARDED_TOPIC, 0, offset)
        except BrokerRefused:  # there is no such group yet
            await self._desk.create_group(BrokerAdmin(self._client, queues.address), self._group, retry_max=0)
            await queues.set_consumer_offset(self._group, DISCARDED_TOPIC, 0, offset)

    def _is_open(self, message: StoredMessage) -> bool:
        topic = message.properties.get(REAL_TOPIC, "")
        is_ours = topic.startswith(self._settings.full(f"{self._settings.prefix}-"))
        return is_ours and message.physical_id not in self._done

    def _half(self, message: StoredMessage) -> DiscardedHalf:
        """`message_id` is the physical one: to look at it and to resume it, the broker wants no other."""
        return DiscardedHalf(
            message_id=message.physical_id,
            topic=self._settings.short(message.properties.get(REAL_TOPIC, "")),
            key=message.properties.get(KEYS, "").split(KEY_END)[0],
            body=message.body,
            checks=int(message.properties.get(CHECK_TIMES, "0")),
            born_at_ms=message.born_at_ms,
            discarded_at_ms=message.stored_at_ms,
        )


def _says(refused: BrokerRefused, code: ResponseCode) -> bool:
    return (refused.why or "").startswith(f"answer {code.value}:")
