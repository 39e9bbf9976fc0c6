"""RocketMQ 5 behind the port: clients through the proxy, and the remoting client for what an operator does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.checks import CheckDesk
from service.adapters.rocketmq.grpc.consumer import GrpcConsumer
from service.adapters.rocketmq.grpc.link import Asked, Link
from service.adapters.rocketmq.grpc.producer import GrpcProducer, GrpcPublisher
from service.adapters.rocketmq.grpc.sdk import RpcClient
from service.adapters.rocketmq.grpc.session import Session
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.wire import Subscriber
from service.adapters.rocketmq.own_process import require_process
from service.adapters.rocketmq.remoting.client import host_and_port
from service.adapters.rocketmq.remoting.routes import NoBroker
from service.adapters.rocketmq.watch import Watch
from service.domain.errors import BrokerRefused, BrokerUnavailable, CannotStart
from service.ports.messaging import (
    CheckBack,
    Consumer,
    Publisher,
    TopicType,
    TransactionalProducer,
)

GRPC_ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""The package hands no certificates to gRPC, which then looks here."""


class GrpcTransport(Operator):
    """Start it in the process that uses it: threads and connections do not survive a fork."""

    def __init__(self, settings: GrpcSettings) -> None:
        super().__init__(settings, setting="DROPGATE_ROCKETMQ_NAMESERVER")
        self._settings = settings
        self._pid: int | None = None
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._producers: dict[str, GrpcProducer] = {}
        self._consumers: list[GrpcConsumer] = []
        self._publishing: Session | None = None
        self._opening, self._opening_publisher = asyncio.Lock(), asyncio.Lock()
        self._watch = Watch()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connects to nothing yet: a broker that is away is said by `missing`, and by what asks for a client."""
        _refuse_a_fork()
        if self._settings.tls_ca is not None:
            os.environ[GRPC_ROOTS] = str(self._settings.tls_ca)
        self._pid = os.getpid()
        self._tasks = [self._watch.start("rocketmq5: watch")]

    def background(self) -> Sequence[asyncio.Task[None]]:
        """One for all clients, also for those to come: it ends when the keeper of one does."""
        return tuple(self._tasks)

    async def close(self) -> None:
        """Consumers, then what is under way, then the clients; each within its bound."""
        await asyncio.gather(*(consumer.close() for consumer in self._consumers))
        await asyncio.gather(*(producer.close() for producer in self._producers.values()))
        tasks = [*self._sessions.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(session.close() for session in self._sessions))
        await self.client.close()

    # --- the port -----------------------------------------------------------------------------------------------------

    async def producer(self, topic: str, check_back: CheckBack) -> TransactionalProducer:
        """It is registered when this returns: the proxy has its settings, the broker its heartbeat (F06)."""
        require_process("rocketmq5", self._pid)
        async with self._opening:
            known = self._producers.get(topic)
            if known is not None:
                known.desk.questions.check_back = check_back
                return known
            desk = CheckDesk(topic, check_back, self._settings)
            session = await self._session(f"rocketmq5: producer of {topic}", [topic], asked=desk.asked)
            desk.answer_through(session)
            async with self._dropped_on_failure(session):
                await self._require_type(session, topic, TopicType.TRANSACTION)
            producer = self._producers[topic] = GrpcProducer(topic, session, desk, self._settings)
            return producer

    def publisher(self) -> Publisher:
        return GrpcPublisher(self._publisher_session, self._settings)

    async def consumer(self, topic: str, group: str, *, invisible_s: float) -> Consumer:
        require_process("rocketmq5", self._pid)
        subscriber = Subscriber(topic=self._settings.full(topic), group=self._settings.full(group))
        session = await self._session(f"rocketmq5: consumer {group}", [topic], subscriber=subscriber)
        async with self._dropped_on_failure(session):
            await self.topics.require_group(topic, group)
            fifo = TopicType.FIFO.value in await self._types(session, topic)
        consumer = GrpcConsumer(session, subscriber, self._settings, invisible_s=invisible_s, fifo=fifo)
        self._consumers.append(consumer)
        return consumer

    async def away(self) -> Sequence[str]:
        """By the clients' signs of life; where there is no client yet, by a connection."""
        proxy = self._settings.proxy
        remedy = "look whether it runs, and at DROPGATE_BROKER_URL"
        if self._sessions:
            alive = all(session.is_alive for session in self._sessions)
            return [] if alive else [f"the proxy at {proxy} gives no sign of life: {remedy}"]
        connects = await asyncio.gather(*map(self._connects, proxy.split(";")))
        return [] if any(connects) else [f"the proxy at {proxy} cannot be reached: {remedy}"]

    # --- clients ------------------------------------------------------------------------------------------------------

    async def _session(
        self, name: str, topics: Sequence[str], *, subscriber: Subscriber | None = None, asked: Asked | None = None
    ) -> Session:
        names = list(map(self._settings.full, topics))

        def make(learned: Iterable[str]) -> Link:
            return Link(self._settings, topics=names, more_topics=learned, subscriber=subscriber, asked=asked)

        session = Session(name, make, self._settings, self._require_broker)
        await session.open()
        keeper = asyncio.create_task(session.keep(), name=name)
        self._watch.over(keeper)
        self._sessions[session] = keeper
        return session

    async def _require_broker(self) -> None:
        """A proxy that has found no route for a topic says so for 20 s (`topicRouteServiceCacheRefreshSeconds`), and
        after a restart it answers before its broker is registered: so it is not asked before. Name servers that cannot
        be asked hold up nothing."""
        try:
            async with asyncio.timeout(self._settings.admin_timeout_s):
                await self.cluster.brokers()
        except NoBroker:
            raise
        except (BrokerUnavailable, TimeoutError):
            return

    @asynccontextmanager
    async def _dropped_on_failure(self, session: Session) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            keeper = self._sessions.pop(session)
            keeper.cancel()
            await asyncio.wait([keeper])
            await session.close()
            raise

    async def _publisher_session(self) -> Session:
        require_process("rocketmq5", self._pid)
        async with self._opening_publisher:
            if self._publishing is None:
                self._publishing = await self._session("rocketmq5: publisher", [])
            return self._publishing

    async def _require_type(self, session: Session, topic: str, type_: TopicType) -> None:
        types = await self._types(session, topic)
        if type_.value not in types:
            raise BrokerRefused(topic, f"the topic is of type {', '.join(sorted(types))}, not {type_}")

    async def _types(self, session: Session, topic: str) -> frozenset[str]:
        return wire.types_of(await session.link.learn(self._settings.full(topic)))

    async def _connects(self, address: str) -> bool:
        try:
            host, port = host_and_port(address)
            async with asyncio.timeout(self._settings.admin_timeout_s):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True


def _refuse_a_fork() -> None:
    """The package keeps one I/O thread in a process. After a fork the child sees it, but it does not run: every call
    would wait for ever (F49)."""
    thread = RpcClient._io_loop_thread
    if thread is not None and not thread.is_alive():
        raise CannotStart("rocketmq5", "the client was used before this process was forked: start it after the fork")
