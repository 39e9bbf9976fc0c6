"""Plain publishing: types are looked at here, as no broker does on this protocol; delays become levels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from service.adapters.rocketmq.admin.topics import MAKES, TopicDesk
from service.adapters.rocketmq.classic.keeper import Client, Open
from service.adapters.rocketmq.classic.level_desk import LevelDesk
from service.adapters.rocketmq.classic.library import NativeFailure
from service.adapters.rocketmq.classic.producer import require_sendable
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.outgoing import lanes, type_of
from service.adapters.rocketmq.remoting.admin import UNTYPED
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import OutgoingMessage, Topic, TopicType


class TypeDesk:
    """A topic's type, by its brokers. What they said is believed until a send to the topic fails: a topic has one type
    for its life. Brokers of 4.x know none: there it is what this process made or looked for."""

    def __init__(self, topics: TopicDesk, settings: ClassicSettings) -> None:
        self._topics = topics
        self._settings = settings
        self._known: dict[str, frozenset[str]] = {}
        self._wanted: dict[str, str] = {}
        """Both as many as the code names."""

    def want(self, topics: Sequence[Topic]) -> None:
        self._wanted |= {topic.name: topic.type.value for topic in topics}

    async def require(self, topic: str, type_: TopicType) -> None:
        """BrokerRefused: there is no such topic, or it is of another type. One that is UNTYPED takes all."""
        types = await self.of(topic)
        if types - {type_.value, UNTYPED}:
            raise BrokerRefused(topic, f"the topic is of type {', '.join(sorted(types))}, not {type_}")

    async def of(self, topic: str) -> frozenset[str]:
        if topic not in self._known:
            full = self._settings.full(topic)
            found = frozenset(it.topics[full].type for it in await self._topics.look() if full in it.topics)
            if not found:
                raise BrokerRefused(topic, f"no such topic: {MAKES}")
            self._known[topic] = found
        return frozenset(self._wanted.get(topic, it) if it == UNTYPED else it for it in self._known[topic])

    def doubt(self, topic: str) -> None:
        self._known.pop(topic, None)


class ClassicPublisher:
    """Its client is made by the first message: a process that publishes nothing needs none."""

    def __init__(self, open_: Open, types: TypeDesk, levels: LevelDesk, settings: ClassicSettings) -> None:
        self._open = open_
        self._types = types
        self._levels = levels
        self._settings = settings
        self._connected: Client | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """In order within a FIFO group; different groups side by side. Raises once nothing is under way any more."""
        client = await self._open()
        for message in messages:
            require_sendable(message)
            await self._types.require(message.topic, type_of(message, half=False))
        ends = await asyncio.gather(*(self._send_all(client, lane) for lane in lanes(messages)), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _send_all(self, client: Client, lane: Sequence[OutgoingMessage]) -> None:
        for message in lane:
            await self._send(client, message)

    async def _send(self, client: Client, message: OutgoingMessage) -> None:
        """The first alone: where several threads find no connection, one makes it, and the sends of others fail."""
        if client is not self._connected:
            async with self._connecting:
                if client is not self._connected:
                    await self._store(client, message)
                    self._connected = client
                    return
        await self._store(client, message)

    async def _store(self, client: Client, message: OutgoingMessage) -> None:
        topic, within_s = message.topic, self._settings.call_timeout_s
        level = await self._level(message)
        sent = client.publish(message, level)
        await asyncio.wait({sent}, timeout=within_s)
        if not sent.done():
            raise BrokerUnavailable(topic, f"not stored within {within_s:g} s")
        if (error := sent.exception()) is not None:
            self._types.doubt(topic)
            raise BrokerUnavailable(topic, str(error) if isinstance(error, NativeFailure) else repr(error)) from error

    async def _level(self, message: OutgoingMessage) -> int | None:
        """A time that is past means: at once."""
        if message.deliver_at_ms is None:
            return None
        remaining_s = message.deliver_at_ms / 1000 - time.time()
        return await self._levels.number_until(message.topic, remaining_s) if remaining_s > 0 else None
