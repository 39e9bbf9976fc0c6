"""How far messages that the broker put aside are dealt with: a cursor over one of its own topics.

Such a topic has one queue on each broker. How far it is dealt with is the offset of a group of ours there: it survives
restarts, and all processes share it. It moves over a run of messages that are dealt with or not ours; what is dealt
with beyond the first that is not is remembered here, and listed again by another process or after a restart, which
finds it ended. So nothing is ever skipped, and one that cannot be decided hides no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.errors import BrokerRefused

QUEUE = 0


class TopicCursor:
    """Messages are named by their physical ids. `topic` and `group` as the broker has them."""

    def __init__(
        self,
        client: RemotingClient,
        cluster: Cluster,
        *,
        topic: str,
        group: str,
        scan_max: int,
        is_ours: Callable[[StoredMessage], bool] = lambda _: True,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._scan_max = scan_max
        self._is_ours = is_ours
        self._done: dict[str, set[int]] = {}
        """By broker: places in its queue beyond our offset, so at most `scan_max`."""
        self._moving = asyncio.Lock()

    async def open(self, limit: int) -> Sequence[StoredMessage]:
        """Ours and not dealt with, oldest first. Others' messages at the head are passed over for good, so that they
        never fill the scan."""
        found: list[StoredMessage] = []
        for queues in await self._brokers():
            found += await self._open_at(queues, limit)
        found.sort(key=lambda message: message.stored_at_ms)
        return found[:limit]

    async def find(self, id_: str) -> StoredMessage | None:
        """None: no message that `open` would list has this id."""
        place = await self._find(id_)
        return None if place is None else place[1]

    async def done(self, id_: str) -> None:
        """It is dealt with. An id that is not listed is left alone."""
        if (place := await self._find(id_)) is None:
            return
        queues, message = place
        self._done.setdefault(queues.address, set()).add(message.queue_offset)
        await self._open_at(queues, 1)

    async def _brokers(self) -> Sequence[BrokerQueues]:
        return [BrokerQueues(self._client, address) for address in await self._cluster.name_servers.masters()]

    async def _find(self, id_: str) -> tuple[BrokerQueues, StoredMessage] | None:
        for queues in await self._brokers():
            async with aclosing(self._walk(queues, await self._offset(queues))) as messages:
                async for message in messages:
                    if message.physical_id == id_:
                        return (queues, message) if self._is_open(queues, message) else None
        return None

    async def _open_at(self, queues: BrokerQueues, limit: int) -> Sequence[StoredMessage]:
        """The first ones; our offset moves on to the very first."""
        start = to = await self._offset(queues)
        found: list[StoredMessage] = []
        async with aclosing(self._walk(queues, start)) as messages:
            async for message in messages:
                if self._is_open(queues, message):
                    found.append(message)
                elif not found:
                    to = message.queue_offset + 1
                if len(found) >= limit:
                    break
        if to > start:
            with suppress(BrokerRefused):  # who may not move it can still look, and remembers here what is done
                await self._move(queues, to)
        self._done[queues.address] = {at for at in self._done.get(queues.address, ()) if at >= to}
        return found

    async def _walk(self, queues: BrokerQueues, start: int) -> AsyncGenerator[StoredMessage, None]:
        """From `start` on, ours or not. A pull without a message counts as one, so that it ends."""
        at, seen = start, 0
        while seen < self._scan_max:
            pulled = await queues.pull_if_there(self._topic, QUEUE, at)
            if pulled is None:  # the broker makes the topic with its first message
                return
            for message in pulled.messages:
                yield message
            if pulled.next_offset <= at or pulled.next_offset >= pulled.offsets.end:
                return
            at = pulled.next_offset
            seen += max(1, len(pulled.messages))

    async def _offset(self, queues: BrokerQueues) -> int:
        return await queues.consumer_offset(self._group, self._topic, QUEUE) or 0

    async def _move(self, queues: BrokerQueues, offset: int) -> None:
        """Never back: who looked earlier may come later, here or in another process. That another process moves it
        between our look and our word costs a second listing."""
        async with self._moving:
            if offset <= await self._offset(queues):
                return
            try:
                await queues.set_consumer_offset(self._group, self._topic, QUEUE, offset)
            except BrokerRefused:  # there is no such group yet
                await BrokerAdmin(self._client, queues.address).create_group(self._group, retry_max=0)
                await queues.set_consumer_offset(self._group, self._topic, QUEUE, offset)

    def _is_open(self, queues: BrokerQueues, message: StoredMessage) -> bool:
        return self._is_ours(message) and message.queue_offset not in self._done.get(queues.address, ())
