"""Keeps the native client of a transport alive: opened by a deadline, looked for at the brokers, replaced when it is
not to be found there.

The package makes its connections anew by itself, and says its name again only with its heartbeat, every 30 s: after a
restart of a broker it would hear of no check-back for so long (F07). So the brokers are asked whom they would ask.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TypeVar

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.classic.checks import CheckDesk
from service.adapters.rocketmq.classic.crew import Crew
from service.adapters.rocketmq.classic.half import Half
from service.adapters.rocketmq.classic.library import NativeFailure
from service.adapters.rocketmq.classic.link import Link, Question
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.remoting.producers import BrokerProducers
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.messaging import OutgoingMessage

LOOP = "rocketmq4: producer"
LOOK_PAUSE_S = 0.1
"""Between two looks for a client that has just started."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Look:
    """Brokers that know our client as one to ask, that do not, and that cannot be asked; over all topics."""

    known: int = 0
    unknown: int = 0
    away: int = 0

    def __add__(self, other: Look) -> Look:
        return Look(known=self.known + other.known, unknown=self.unknown + other.unknown, away=self.away + other.away)


class Client:
    """A link with its threads."""

    def __init__(self, link: Link, settings: ClassicSettings) -> None:
        self.link = link
        self._settings = settings
        self._life = Crew("rocketmq4: life", 1)
        self._halves = Crew("rocketmq4: half", settings.halves_max)
        self._sends = Crew("rocketmq4: send", settings.sends_max)

    async def within(self, seconds: float, work: Callable[[], T]) -> T:
        """What starts or stops something. BrokerUnavailable: it did not, or not in time, and is left behind."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._life.submit(work))
        except TimeoutError:
            raise BrokerUnavailable(self._settings.name_servers, f"not done within {seconds:g} s") from None
        except NativeFailure as error:
            raise BrokerUnavailable(self._settings.name_servers, str(error)) from error

    def send_half(self, message: OutgoingMessage, half: Half) -> asyncio.Future[None]:
        return self._halves.submit(lambda: self.link.send_half(message, half))

    def publish(self, message: OutgoingMessage, level: int | None) -> asyncio.Future[None]:
        return self._sends.submit(lambda: self.link.publish(message, level))

    async def close(self) -> None:
        """Bounded. A client with a call that does not return is not closed: that call would use what is gone. The
        process ends all the same (library.py)."""
        with suppress(TimeoutError, BrokerUnavailable):
            async with asyncio.timeout(self._settings.close_timeout_s):
                await asyncio.gather(self._halves.until_idle(), self._sends.until_idle())
                await self.within(self._settings.close_timeout_s, self.link.close)
        for crew in (self._halves, self._sends, self._life):
            crew.dismiss()


class Keeper:
    """`client` may be another one at every use: ask for it each time."""

    def __init__(self, settings: ClassicSettings, operator: Operator) -> None:
        self._settings = settings
        self._operator = operator
        self._loop = asyncio.get_running_loop()
        self._desks: dict[str, CheckDesk] = {}
        self._client: Client | None = None
        self._closed = False
        self._opening = asyncio.Lock()
        self._instances = (f"dropgate-{os.getpid()}-{uuid.uuid4().hex[:8]}-{number}" for number in count(1))
        self._known_s = self._alive_s = time.monotonic()
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def is_watching(self) -> bool:
        """There is a topic of half messages, so the brokers can be asked whether they know us."""
        return bool(self._desks)

    @property
    def is_alive(self) -> bool:
        """One broker at least knew our client lately."""
        return time.monotonic() - self._alive_s < self._settings.deaf_after_s

    async def client(self) -> Client:
        """BrokerUnavailable: the library does not start, or all is closed."""
        async with self._opening:
            if self._closed:
                raise BrokerUnavailable(self._settings.name_servers, "the transport is closed")
            if self._client is None:
                self._client = await self._opened(())
            return self._client

    async def open_topic(self, topic: str, desk: CheckDesk) -> None:
        """Registered when it returns: the brokers name us among those to ask. BrokerUnavailable: they do not."""
        full = self._settings.full(topic)
        client = await self.client()
        self._desks[full] = desk
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                await client.within(self._settings.start_timeout_s, lambda: client.link.open_topic(full))
                await self._until_known(client, full)
        except TimeoutError:
            why = f"no broker knew our client within {self._settings.start_timeout_s:g} s"
            self._abandon(client, full)
            raise BrokerUnavailable(topic, why) from None
        except BaseException:
            self._abandon(client, full)
            raise
        self._known_s = self._alive_s = time.monotonic()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._settings.look_every_s)
            if self._client is not None and self._desks:
                await self._turn(self._client)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            self._leave(client)
        if self._leaving:
            await asyncio.wait(self._leaving)

    # --- one turn -----------------------------------------------------------------------------------------------------

    async def _turn(self, client: Client) -> None:
        look, now_s = await self._look(client), time.monotonic()
        if look.known:
            self._alive_s = now_s
        if not look.unknown:
            self._known_s = now_s
            if client.link.heard_s + self._settings.beat_every_s < now_s and not look.away:
                await self._beat(client)
        elif now_s - self._known_s < self._settings.replace_after_s:
            await self._beat(client)
        else:
            await self._replace(client)

    async def _beat(self, client: Client) -> None:
        """However it ends: the next look says what came of it."""
        with suppress(BrokerUnavailable):
            await client.within(self._settings.heartbeat_timeout_s * 2, client.link.beat)

    async def _replace(self, old: Client) -> None:
        silent_s = time.monotonic() - self._known_s
        warn(Action.LOOP_FAILED, loop=LOOP, why=f"a broker has not known our client for {silent_s:.0f} s: another one")
        try:
            fresh = await self._opened(tuple(self._desks))
        except BrokerUnavailable as error:
            warn(Action.LOOP_FAILED, loop=LOOP, why=error.why)
            return
        self._client = fresh
        self._leave(old)
        self._known_s = time.monotonic()
        log(Action.STARTED, loop=LOOP, silent_s=round(silent_s, 1))

    async def _opened(self, topics: tuple[str, ...]) -> Client:
        client = Client(Link(self._settings, next(self._instances), self._pass_on), self._settings)
        try:
            await client.within(self._settings.start_timeout_s, client.link.open)
            for topic in topics:
                await client.within(self._settings.start_timeout_s, partial(client.link.open_topic, topic))
        except BaseException:
            self._leave(client)
            raise
        return client

    # --- looks --------------------------------------------------------------------------------------------------------

    async def _until_known(self, client: Client, topic: str) -> None:
        while not (await self._look_at(client, topic)).known:  # noqa: ASYNC110 - each turn asks
            await asyncio.sleep(LOOK_PAUSE_S)

    async def _look(self, client: Client) -> Look:
        looks = await asyncio.gather(*(self._look_at(client, topic) for topic in self._desks))
        return sum(looks, Look())

    async def _look_at(self, client: Client, topic: str) -> Look:
        """Where the name servers are away, or the topic has gone, nothing is known."""
        try:
            parts = await self._operator.cluster.name_servers.route(topic)
        except BrokerUnavailable:
            return Look(away=1)
        looks = await asyncio.gather(*(self._look_there(client, topic, part.address) for part in parts))
        return sum(looks, Look())

    async def _look_there(self, client: Client, topic: str, address: str) -> Look:
        try:
            known = await BrokerProducers(self._operator.client, address).client_ids(topic)
        except BrokerRefused:  # it tells not everybody: that it answers has to do
            return Look(known=1)
        except BrokerUnavailable:
            return Look(away=1)
        is_known = any(client.link.instance in it for it in known)
        return Look(known=1) if is_known else Look(unknown=1)

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _abandon(self, client: Client, topic: str) -> None:
        """The topic is not open, and with it no other of the client's may stay half open."""
        self._desks.pop(topic, None)
        if self._client is client and not self._desks:
            self._client = None
            self._leave(client)

    def _leave(self, client: Client) -> None:
        task = asyncio.create_task(client.close(), name=f"{LOOP}: leave")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _pass_on(self, topic: str, question: Question) -> None:
        """On a native thread. RuntimeError where the loop is gone."""
        self._loop.call_soon_threadsafe(self._ask, topic, question)

    def _ask(self, topic: str, question: Question) -> None:
        if (desk := self._desks.get(topic)) is not None:
            desk.asked(question)


Open = Callable[[], Awaitable[Client]]
