"""How much of a topic has not ended. The broker keeps no such number: it is read off its own queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.errors import BrokerRefused
from service.ports.messaging import Backlog

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PUT_OFF_S = 6.0
"""A message that is put off for 1 s is handed out again after 4 s (seen with 5.4.0), and counted nowhere meanwhile."""
CHECKER = "CID_RMQ_SYS_TRANS"
"""The broker's own reader of both: its offset is how far its last scan has come."""


class BacklogDesk:
    def __init__(self, client: RemotingClient, cluster: Cluster, settings: AdminSettings) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings

    async def look(self, topic: str, group: str) -> Backlog:
        halves, undelivered = await asyncio.gather(self._halves(topic), self._undelivered(topic, group))
        return Backlog(halves=halves, undelivered=undelivered, blind_s=PUT_OFF_S)

    async def _undelivered(self, topic: str, group: str) -> int:
        """Not handed out yet, first or again. What a consumer holds, or has put off, is not among them after 10 s: the
        broker counts it as given."""
        topic, group = self._settings.full(topic), self._settings.full(group)
        lags = [self._cluster.lag(group, topic)]
        lags += [self._lag_of_retries(group, f"%RETRY%{group}{end}") for end in ("", f"_{topic}", f"+{topic}")]
        return sum(await asyncio.gather(*lags))

    async def _lag_of_retries(self, group: str, retry_topic: str) -> int:
        """The broker makes the topic with the first retry; its name's form depends on the protocol and the release."""
        try:
            return await self._cluster.lag(group, retry_topic)
        except BrokerRefused:
            return 0

    async def _halves(self, topic: str) -> int:
        """Of this topic while they are few, else of all topics of these brokers: then it is an upper bound."""
        addresses = await self._cluster.name_servers.masters()
        queues = [BrokerQueues(self._client, address) for address in addresses]
        return sum(await asyncio.gather(*(self._undecided(it, self._settings.full(topic)) for it in queues)))

    async def _undecided(self, queues: BrokerQueues, topic: str) -> int:
        """Half messages past the broker's last scan, less those whose end is noted: it notes ends in bundles, up to 3 s
        late, and moves on only with the next scan. A broker of 4.9 shows nobody what it noted (seen with 4.9.7): there
        a half message that has ended counts until that scan."""
        scanned = await queues.consumer_offset(CHECKER, HALF_TOPIC, 0) or 0
        half = await queues.offsets(HALF_TOPIC, 0)
        first = max(scanned, half.first)
        if half.end <= first:
            return 0
        ended = {
            offset
            for message in await self._pulled(queues, OP_TOPIC, await queues.consumer_offset(CHECKER, OP_TOPIC, 0) or 0)
            for offset in _offsets(message.body)
            if first <= offset < half.end
        }
        if half.end - first > self._settings.half_scan_max:
            return max(0, half.end - first - len(ended))
        halves = await self._pulled(queues, HALF_TOPIC, first)
        return sum(it.real_topic == topic and it.queue_offset not in ended for it in halves)

    async def _pulled(self, queues: BrokerQueues, topic: str, at: int) -> Sequence[StoredMessage]:
        """From there to the end, within `scan_pulls_max`. Nothing of a topic that the broker does not show."""
        found: list[StoredMessage] = []
        for _ in range(self._settings.scan_pulls_max):
            pulled = await queues.pull_if_there(topic, 0, at)
            if pulled is None:
                break
            found += pulled.messages
            if pulled.next_offset <= at or pulled.next_offset >= pulled.offsets.end:
                break
            at = pulled.next_offset
        return found


def _offsets(body: bytes) -> list[int]:
    """Places in the half queue, with commas between."""
    return [int(part) for part in body.split(b",") if part.strip().isdigit()]
