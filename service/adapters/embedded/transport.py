"""The transport that needs no broker: one SQLite file, any number of processes on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from service.adapters.embedded import halves, look, store
from service.adapters.embedded.checks import CheckPump
from service.adapters.embedded.consumer import EmbeddedConsumer
from service.adapters.embedded.database import Database
from service.adapters.embedded.look import Counts
from service.adapters.embedded.producer import EmbeddedProducer, EmbeddedPublisher
from service.adapters.embedded.settings import EmbeddedSettings
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.messaging import (
    Backlog,
    CheckBack,
    Consumer,
    DeadLetter,
    DiscardedHalf,
    Publisher,
    Topic,
    TopicType,
    TransactionalProducer,
)

FILE_NAME = "broker.db"
LOOK_MAX = 1000
"""Rows that one look at discarded or dead messages returns at most: a page, not the table."""


class EmbeddedTransport:
    """`folder/broker.db`. Create it in the process that uses it: a SQLite connection does not survive a fork."""

    def __init__(self, folder: Path, clock: Clock, settings: EmbeddedSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or EmbeddedSettings()
        self._database = Database(folder / FILE_NAME, self._settings)
        self._pump = CheckPump(self._database, clock, self._settings)
        self._consumers: list[EmbeddedConsumer] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [
            await self._database.open(),
            asyncio.create_task(self._watch(), name="embedded broker: watch"),
            asyncio.create_task(self._pump.run(), name="embedded broker: check-backs"),
            asyncio.create_task(self._retain(), name="embedded broker: retention"),
        ]

    def background(self) -> Sequence[asyncio.Task[None]]:
        return tuple(self._tasks)

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()
        loops = self._tasks[1:]
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops)
        await self._pump.close()
        await self._database.close()

    async def producer(self, topic: str, check_back: CheckBack) -> TransactionalProducer:
        await self._database.read(lambda c: store.require_type(c, topic, TopicType.TRANSACTION))
        self._pump.register(topic, check_back)
        return EmbeddedProducer(self._database, self._clock, self._settings)

    def publisher(self) -> Publisher:
        return EmbeddedPublisher(self._database, self._clock)

    async def consumer(self, topic: str, group: str, *, invisible_s: float) -> Consumer:
        await self._database.read(lambda c: (store.topic_type(c, topic), store.max_attempts(c, topic, group)))
        consumer = EmbeddedConsumer(
            self._database, self._clock, self._settings, topic=topic, group=group, invisible_s=invisible_s
        )
        self._consumers.append(consumer)
        return consumer

    async def create_topics(self, topics: Sequence[Topic]) -> None:
        """Also sets a known group's `max_attempts`: it follows the code."""
        for topic in topics:
            await self._database.write(partial(store.create_topic, topic=topic), wakes=True)

    async def missing(self, topics: Sequence[Topic]) -> Sequence[str]:
        found = [await self._database.read(partial(store.not_as_wanted, topic=topic)) for topic in topics]
        return [sentence for sentence in found if sentence is not None]

    async def away(self) -> Sequence[str]:
        """Its file says so by itself."""
        return ()

    async def backlog(self, topic: str, group: str) -> Backlog:
        return await self._database.read(
            lambda c: Backlog(halves=halves.waiting(c, topic), undelivered=store.undelivered(c, topic, group))
        )

    async def discarded(self, limit: int = LOOK_MAX) -> Sequence[DiscardedHalf]:
        return await self._database.read(lambda c: look.discarded(c, min(limit, LOOK_MAX)))

    async def forget_discarded(self, message_id: str) -> None:
        await self._database.write(lambda c: halves.forget(c, message_id))

    async def resume_discarded(self, message_id: str) -> None:
        """The first question is due at once, as in RocketMQ: the message is older than the transaction time-out."""
        now_ms = self._clock.now_ms()
        await self._database.write(lambda c: halves.resume(c, message_id, now_ms))

    async def dead_letters(self, group: str, limit: int = LOOK_MAX) -> Sequence[DeadLetter]:
        return await self._database.read(lambda c: look.dead_letters(c, group, min(limit, LOOK_MAX)))

    async def forget_dead_letter(self, group: str, message_id: str) -> None:
        await self._database.write(lambda c: store.forget_dead_letter(c, group, message_id))

    async def counts(self) -> Counts:
        return await self._database.read(look.counts)

    async def _watch(self) -> None:
        while True:
            try:
                await self._database.look_for_foreign_changes()
            except BrokerUnavailable as error:
                warn(Action.LOOP_FAILED, loop="embedded broker: watch", why=error.why)
            await asyncio.sleep(self._settings.poll_s)

    async def _retain(self) -> None:
        while True:
            try:
                more = await self.retain_once()
            except BrokerUnavailable as error:
                warn(Action.LOOP_FAILED, loop="embedded broker: retention", why=error.why)
                more = False
            await asyncio.sleep(self._settings.poll_s if more else self._settings.retention_every_s)

    async def retain_once(self) -> bool:
        """Delete one chunk of what is past its time. True: there may be more.

        Acknowledged messages need no sweep: they go with their last group's settle."""
        before_ms = self._clock.now_ms() - round(self._settings.keep_s * 1000)
        chunk = self._settings.retention_chunk
        drops = (store.drop_unread, store.drop_dead_letters, halves.drop_discarded)
        gone = await self._database.write(lambda c: max(drop(c, before_ms, chunk) for drop in drops))
        return gone == chunk
