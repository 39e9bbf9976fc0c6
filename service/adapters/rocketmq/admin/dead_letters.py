"""Dead letters: each group's lie in a topic of its own, which the broker makes with the first one.

By whichever way a message dies, by our word or by its attempts, the proxy has the broker copy it there. The copy says
what it was and where it came from, and not why (seen with 5.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from service.adapters.rocketmq.admin.cursor import TopicCursor
from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.ports.messaging import DeadLetter

RETRY_TOPIC = "RETRY_TOPIC"
"""Where the copy was taken from: the topic, or the group's retries of it."""


class DeadLetterDesk:
    """`message_id` is the physical one of the copy."""

    def __init__(self, client: RemotingClient, cluster: Cluster, settings: AdminSettings) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._cursors: dict[str, TopicCursor] = {}
        """By group: as many as the code names."""

    async def look(self, group: str, limit: int) -> Sequence[DeadLetter]:
        if not (found := await self._cursor(group).open(limit)):
            return []
        attempts_max = await self._attempts_max(group)
        return [self._letter(group, message, attempts_max) for message in found]

    async def forget(self, group: str, message_id: str) -> None:
        await self._cursor(group).done(message_id)

    def _cursor(self, group: str) -> TopicCursor:
        if group not in self._cursors:
            self._cursors[group] = TopicCursor(
                self._client,
                self._cluster,
                topic=f"%DLQ%{self._settings.full(group)}",
                group=self._settings.full(f"{self._settings.prefix}-dead-letters"),
                scan_max=self._settings.aside_scan_max,
            )
        return self._cursors[group]

    async def _attempts_max(self, group: str) -> int | None:
        """None: the group is gone."""
        brokers = await self._cluster.brokers()
        groups = [(await broker.groups()).get(self._settings.full(group)) for broker in brokers]
        return max((it.retry_max + 1 for it in groups if it is not None), default=None)

    def _letter(self, group: str, message: StoredMessage, attempts_max: int | None) -> DeadLetter:
        """The copy counts as one more attempt, and what ran out of attempts has one more for being tried again. Of a
        FIFO topic the broker keeps no count: 1."""
        return DeadLetter(
            group=group,
            topic=self._topic(group, message),
            message_id=message.physical_id,
            key=message.key,
            body=message.body,
            attempts=min(message.reconsumed, attempts_max or message.reconsumed),
            why=None,
            born_at_ms=message.born_at_ms,
            dead_at_ms=message.stored_at_ms,
        )

    def _topic(self, group: str, message: StoredMessage) -> str:
        """The retries' topic is named after both, with a joint that depends on the release: `%RETRY%group_topic`."""
        retries, source = f"%RETRY%{self._settings.full(group)}", message.properties.get(RETRY_TOPIC, "")
        topic = source.removeprefix(retries)[1:] if source.startswith(retries) else source
        return self._settings.short(topic)
