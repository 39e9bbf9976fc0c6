"""RocketMQ by its classic protocol behind the port: native producers here, native consumers in processes of their own,
and the remoting client for all else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.classic.checks import CheckDesk
from service.adapters.rocketmq.classic.consumer import ConsumerDesk
from service.adapters.rocketmq.classic.keeper import Client, Keeper
from service.adapters.rocketmq.classic.level_desk import LevelDesk
from service.adapters.rocketmq.classic.producer import ClassicProducer
from service.adapters.rocketmq.classic.publisher import ClassicPublisher, TypeDesk
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.own_process import require_process
from service.adapters.rocketmq.watch import Watch
from service.domain.errors import BrokerUnavailable
from service.ports.messaging import Backlog, CheckBack, Consumer, Publisher, Topic, TopicType, TransactionalProducer

URL_SETTING = "DROPGATE_BROKER_URL"
PUT_OFF_S = 1.0
"""Messages of a sale that waits for its authority are put off for so long."""
LEVEL_LATE_S = 2.0
"""A broker looks at each of its levels every 0.1 s, a busy one later."""


class ClassicTransport(Operator):
    """Start it in the process that uses it: threads and connections do not survive a fork."""

    def __init__(self, settings: ClassicSettings) -> None:
        super().__init__(settings, setting=URL_SETTING)
        self._settings = settings
        self._pid: int | None = None
        self._levels = LevelDesk(self.cluster, settings)
        self._types = TypeDesk(self.topics, settings)
        self._consumers = ConsumerDesk(settings, self)
        self._producers: dict[str, ClassicProducer] = {}
        self._opening = asyncio.Lock()
        self._keeper: Keeper | None = None
        self._watch = Watch()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connects to nothing yet: a broker that is away is said by `missing`, and by what asks for a client."""
        self._pid = os.getpid()
        self._keeper = Keeper(self._settings, self)
        keeping = asyncio.create_task(self._keeper.keep(), name="rocketmq4: keep")
        self._watch.over(keeping)
        self._tasks = [keeping, self._watch.start("rocketmq4: watch")]

    def background(self) -> Sequence[asyncio.Task[None]]:
        """One for all clients, also for those to come: it ends when the keeper of one does."""
        return tuple(self._tasks)

    async def close(self) -> None:
        """Consumers, then what is under way, then the clients; each within its bound."""
        await self._consumers.close()
        await asyncio.gather(*(producer.close() for producer in self._producers.values()))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._keeper is not None:
            await self._keeper.close()
        await self.client.close()

    # --- the port -----------------------------------------------------------------------------------------------------

    async def producer(self, topic: str, check_back: CheckBack) -> TransactionalProducer:
        """It is registered when this returns: a broker names it among those to ask (F06)."""
        keeper = self._started()
        async with self._opening:
            if (known := self._producers.get(topic)) is not None:
                known.desk.questions.check_back = check_back
                return known
            await self._types.require(topic, TopicType.TRANSACTION)
            desk = CheckDesk(topic, check_back, self._settings, self)
            await keeper.open_topic(topic, desk)
            producer = self._producers[topic] = ClassicProducer(topic, self._client, desk, self._settings)
            return producer

    def publisher(self) -> Publisher:
        return ClassicPublisher(self._client, self._types, self._levels, self._settings)

    async def consumer(self, topic: str, group: str, *, invisible_s: float) -> Consumer:
        self._started()
        await self.topics.require_group(topic, group)
        fifo = TopicType.FIFO.value in await self._types.of(topic)
        return await self._consumers.open(
            topic,
            group,
            invisible_s=invisible_s,
            fifo=fifo,
            on_keeper=self._watch.over,
        )

    async def create_topics(self, topics: Sequence[Topic]) -> None:
        self._types.want(topics)
        await super().create_topics(topics)

    async def not_as_wanted(self, topics: Sequence[Topic]) -> Sequence[str]:
        """A delay is a level here, so the payment window has to be one (F23)."""
        self._types.want(topics)
        window_s = self._settings.payment_window_s
        if window_s is None or not any(topic.type is TopicType.DELAY for topic in topics):
            return await super().not_as_wanted(topics)
        found = await asyncio.gather(super().not_as_wanted(topics), self._levels.not_offered(window_s))
        return [sentence for sentences in found for sentence in sentences]

    async def backlog(self, topic: str, group: str) -> Backlog:
        """What is put off waits among the broker's delayed messages, and is counted nowhere until its level is over."""
        found, levels = await asyncio.gather(super().backlog(topic, group), self._levels.levels())
        level = levels.not_shorter(PUT_OFF_S) or levels.longest
        return replace(found, blind_s=level.seconds + LEVEL_LATE_S)

    async def away(self) -> Sequence[str]:
        """By the brokers' word that they know our client; where there is none yet, by any word of theirs."""
        where = f"the brokers behind the name server {self._settings.name_servers}"
        remedy = f"look whether they run, and at {URL_SETTING}"
        if self._keeper is not None and self._keeper.is_watching:
            return [] if self._keeper.is_alive else [f"{where} give no sign of life: {remedy}"]
        try:
            async with asyncio.timeout(self._settings.admin_timeout_s):
                found = await self.cluster.name_servers.masters()
        except (BrokerUnavailable, TimeoutError):
            found = []
        return [] if found else [f"{where} cannot be reached: {remedy}"]

    # --- clients ------------------------------------------------------------------------------------------------------

    def _started(self) -> Keeper:
        require_process("rocketmq4", self._pid)
        if self._keeper is None:
            raise AssertionError("the transport was not started")
        return self._keeper

    async def _client(self) -> Client:
        return await self._started().client()
