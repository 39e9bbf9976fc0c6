"""A consumer group on one topic, at all brokers that have it: what must be so before it is consumed from, signs of
life, offsets, and messages sent back.

All of it is asked by the remoting client, of the brokers themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.admin.topics import MAKES
from service.adapters.rocketmq.classic.frames import Message
from service.adapters.rocketmq.classic.level_desk import LevelDesk
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.remoting.consumers import DEAD_LEVEL, BrokerConsumers, Membership, QueueState
from service.adapters.rocketmq.remoting.messages import UNIQUE_ID, StoredMessage
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.adapters.rocketmq.remoting.routes import TopicPart
from service.domain.errors import BrokerRefused, BrokerUnavailable

RETRIES = "%RETRY%"
"""Begins the name of the topic of a group's retries."""
PUSHED = "CONSUME_PASSIVELY"
SHARED = "CLUSTERING"
EVERYTHING = frozenset({"*", ""})
LOOKS_FOR_RETRIES, LOOK_PAUSE_S = 20, 0.05
"""A name server hears of a new topic at once; a client that looks before that looks again after 30 s."""


class Ear(Enum):
    """Whether a broker and a consumer hear each other."""

    HEARS = auto()
    UNKNOWN = auto()
    """The broker has no consumer of this name."""
    MUTE = auto()
    """It has, and got no answer from it."""
    AWAY = auto()
    """The broker cannot be asked."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """At one broker. `queues`: those of its that the client has, where the two hear each other."""

    ear: Ear
    queues: Sequence[QueueState] = ()


@dataclass(frozen=True, kw_only=True)
class Prepared:
    queues: int
    attempts_max: int


class Group:
    def __init__(
        self, operator: Operator, levels: LevelDesk, settings: ClassicSettings, *, topic: str, group: str
    ) -> None:
        """Names without the namespace."""
        self._client, self._cluster, self._desk = operator.client, operator.cluster, operator.topics
        self._levels = levels
        self._short_topic, self._short_group = topic, group
        self.topic, self.name = settings.full(topic), settings.full(group)
        self._parts: Sequence[TopicPart] = ()

    # --- before it is consumed from -----------------------------------------------------------------------------------

    async def prepare(self) -> Prepared:
        """BrokerRefused: the topic or the group is missing, or others consume in it in another way."""
        attempts_max = await self._required()
        self._parts = await self._cluster.name_servers.route(self.topic)
        await self.refuse_others()
        await asyncio.gather(*map(self._begin_at_the_first, self._parts))
        await self._make_retries()
        return Prepared(queues=sum(part.read_queues for part in self._parts), attempts_max=attempts_max)

    async def refuse_others(self) -> None:
        """A broker keeps the subscription of whoever spoke last, and withholds from all others what is not in it."""
        for broker in self._brokers():
            members = await broker.members(self.name)
            why = self._other_way(members) if members is not None else None
            if why is not None:
                raise BrokerRefused(self._short_group, f"{why} (at broker {broker.address})")

    async def _required(self) -> int:
        """Deliveries before the group gives up, by its strictest broker. It must be everywhere: a broker would make one
        by itself, with its own number of attempts."""
        everywhere = await self._desk.look()
        if not any(self.topic in found.topics for found in everywhere):
            raise BrokerRefused(self._short_topic, f"no such topic: {MAKES}")
        groups = [found.groups.get(self.name) for found in everywhere]
        known = [group.retry_max + 1 for group in groups if group is not None]
        if len(known) < len(groups):
            raise BrokerRefused(self._short_topic, f"it has no group {self._short_group}: {MAKES}")
        return min(known)

    def _other_way(self, members: Membership) -> str | None:
        topics = {topic for topic in members.subscriptions if not topic.startswith(RETRIES)}
        tags = members.subscriptions.get(self.topic, "*")
        if topics - {self.topic} or tags not in EVERYTHING:
            said = ", ".join(f"{topic} ({members.subscriptions[topic]})" for topic in sorted(topics))
            return (
                f"its consumers subscribe to {said}, not to all of {self.topic}: give each subscription its own group"
            )
        if members.message_model not in {SHARED, ""} or members.consume_type not in {PUSHED, ""}:
            said = f"{members.consume_type}, {members.message_model}"
            return f"its consumers are of another kind ({said}) and would get all messages too: stop them first"
        return None

    async def _begin_at_the_first(self, part: TopicPart) -> None:
        """Where the group never said how far it is the package begins at the end, and misses what was sent before."""
        queues = BrokerQueues(self._client, part.address)
        for queue in range(part.read_queues):
            if await queues.consumer_offset(self.name, self.topic, queue) is None:
                first = (await queues.offsets(self.topic, queue)).first
                await queues.set_consumer_offset(self.name, self.topic, queue, first)

    async def _make_retries(self) -> None:
        """Before the client looks for their topic: it would look again after 30 s."""
        for _ in range(LOOKS_FOR_RETRIES):
            with suppress(BrokerRefused):
                await self._cluster.name_servers.route(f"{RETRIES}{self.name}")
                return
            for broker in self._brokers():
                await broker.make_retries(self.name, self.topic)
            await asyncio.sleep(LOOK_PAUSE_S)

    # --- signs of life, offsets ---------------------------------------------------------------------------------------

    async def look(self, whose: str) -> Sequence[Look]:
        """At each broker, for the client whose id ends so."""
        return await asyncio.gather(*(self._look(broker, whose) for broker in self._brokers()))

    async def read_to(self, state: QueueState) -> int | None:
        """How far the client has read this queue. None: to its end."""
        address = next((part.address for part in self._parts if part.broker == state.broker), None)
        if address is None:
            return None
        queues = BrokerQueues(self._client, address)
        at = state.offset if state.offset is not None else await self._stored(queues, state)
        return at if (await queues.offsets(state.topic, state.queue)).end > at else None

    async def _stored(self, queues: BrokerQueues, state: QueueState) -> int:
        return await queues.consumer_offset(self.name, state.topic, state.queue) or 0

    async def store_offsets(self, whose: str) -> None:
        """As far as the client knows itself to be; it would store that within 5 s. Never back: another may be ahead."""
        await asyncio.gather(*(self._store_at(broker, whose) for broker in self._brokers()))

    async def _look(self, broker: BrokerConsumers, whose: str) -> Look:
        try:
            client_id = await self._client_id(broker, whose)
        except BrokerUnavailable:
            return Look(ear=Ear.AWAY)
        if client_id is None:
            return Look(ear=Ear.UNKNOWN)
        try:
            return Look(ear=Ear.HEARS, queues=await broker.states(self.name, client_id))
        except BrokerUnavailable:
            return Look(ear=Ear.MUTE)

    async def _client_id(self, broker: BrokerConsumers, whose: str) -> str | None:
        members = await broker.members(self.name)
        return next((it for it in members.client_ids if it.endswith(whose)), None) if members is not None else None

    async def _store_at(self, broker: BrokerConsumers, whose: str) -> None:
        client_id = await self._client_id(broker, whose)
        names = {part.broker for part in self._parts if part.address == broker.address}
        queues = BrokerQueues(self._client, broker.address)
        for state in await broker.states(self.name, client_id) if client_id is not None else ():
            if state.broker in names and state.offset is not None:
                await self._store(queues, state, state.offset)

    async def _store(self, queues: BrokerQueues, state: QueueState, offset: int) -> None:
        if offset > await self._stored(queues, state):
            await queues.set_consumer_offset(self.name, state.topic, state.queue, offset)

    # --- sending back -------------------------------------------------------------------------------------------------

    async def send_back(self, message: Message, delay_s: float) -> None:
        """To come again after the shortest level that is not shorter, or after the longest there is."""
        broker = await self._holder(message)
        levels = await self._levels.levels()
        level = levels.not_shorter(delay_s) or levels.longest
        await broker.send_back(self.name, self.topic, message.offset, level.number)

    async def bury(self, message: Message) -> None:
        """To the group's dead letters."""
        broker = await self._holder(message)
        await broker.send_back(self.name, self.topic, message.offset, DEAD_LEVEL)

    async def _holder(self, message: Message) -> BrokerConsumers:
        """The package says where in a broker's commit log a message lies, and not in whose."""

        def is_it(stored: StoredMessage) -> bool:
            return message.message_id in {stored.physical_id, stored.properties.get(UNIQUE_ID)}

        found = await self._cluster.holder(self._addresses(), message.offset, is_it)
        if found is None:
            raise BrokerUnavailable(self._short_group, f"no broker that answers has message {message.message_id}")
        return BrokerConsumers(self._client, found)

    def _addresses(self) -> Sequence[str]:
        return sorted({part.address for part in self._parts})

    def _brokers(self) -> Sequence[BrokerConsumers]:
        return [BrokerConsumers(self._client, address) for address in self._addresses()]
