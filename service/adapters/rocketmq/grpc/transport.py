"""RocketMQ 5 behind the port: clients through the proxy, and the remoting client for what an operator does."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.backlog import BacklogDesk
from service.adapters.rocketmq.grpc.checks import CheckDesk
from service.adapters.rocketmq.grpc.consumer import GrpcConsumer
from service.adapters.rocketmq.grpc.dead_letters import DeadLetterDesk
from service.adapters.rocketmq.grpc.discarded import DiscardedDesk
from service.adapters.rocketmq.grpc.link import Asked, Link
from service.adapters.rocketmq.grpc.producer import GrpcProducer, GrpcPublisher
from service.adapters.rocketmq.grpc.sdk import RpcClient
from service.adapters.rocketmq.grpc.session import Session, require_process
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.topics import TopicDesk
from service.adapters.rocketmq.grpc.wire import Subscriber
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions, host_and_port
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.signing import Credentials
from service.domain.errors import BrokerRefused, BrokerUnavailable, CannotStart
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

LOOK_MAX = 1000
"""Discarded half messages, or dead letters, that one look returns at most: a page, not the topic."""
GRPC_ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""The package hands no certificates to gRPC, which then looks here."""


class GrpcTransport:
    """Start it in the process that uses it: threads and connections do not survive a fork."""

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._pid: int | None = None
        self._client = RemotingClient(_remoting_options(settings))
        self._cluster = Cluster(self._client, settings.name_servers)
        self._topics = TopicDesk(self._cluster, settings)
        self._backlog = BacklogDesk(self._client, self._cluster, settings)
        self._discarded = DiscardedDesk(self._client, self._cluster, settings)
        self._dead_letters = DeadLetterDesk(self._client, self._cluster, settings)
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._producers: dict[str, GrpcProducer] = {}
        self._consumers: list[GrpcConsumer] = []
        self._publishing: Session | None = None
        self._opening, self._opening_publisher = asyncio.Lock(), asyncio.Lock()
        self._failed: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connects to nothing yet: a broker that is away is said by `missing`, and by what asks for a client."""
        _refuse_a_fork()
        if self._settings.tls_ca is not None:
            os.environ[GRPC_ROOTS] = str(self._settings.tls_ca)
        self._pid = os.getpid()
        self._failed = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._watch(self._failed), name="rocketmq5: watch")]

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
        await self._client.close()

    # --- the port -----------------------------------------------------------------------------------------------------

    async def producer(self, topic: str, check_back: CheckBack) -> TransactionalProducer:
        """It is registered when this returns: the proxy has its settings, the broker its heartbeat (F06)."""
        require_process(self._pid)
        async with self._opening:
            known = self._producers.get(topic)
            if known is not None:
                known.desk.check_back = check_back
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
        require_process(self._pid)
        subscriber = Subscriber(topic=self._settings.full(topic), group=self._settings.full(group))
        session = await self._session(f"rocketmq5: consumer {group}", [topic], subscriber=subscriber)
        async with self._dropped_on_failure(session):
            await self._topics.require_group(topic, group)
            fifo = TopicType.FIFO.value in await self._types(session, topic)
        consumer = GrpcConsumer(session, subscriber, self._settings, invisible_s=invisible_s, fifo=fifo)
        self._consumers.append(consumer)
        return consumer

    async def create_topics(self, topics: Sequence[Topic]) -> None:
        await self._topics.create(topics)

    async def missing(self, topics: Sequence[Topic]) -> Sequence[str]:
        """Within the time of one admin request, as `/readyz` waits no longer."""
        name_servers = self._settings.name_servers
        behind = f"RocketMQ behind the name server {name_servers}"
        remedy = "look whether it runs, and at DROPGATE_ROCKETMQ_NAMESERVER"
        try:
            async with asyncio.timeout(self._settings.admin_timeout_s):
                return await self._topics.not_as_wanted(topics)
        except TimeoutError:
            raise BrokerUnavailable(name_servers, f"{behind} does not answer", remedy) from None
        except BrokerUnavailable as error:
            said = f"{error.what}: {error.why}"
            raise BrokerUnavailable(name_servers, f"{behind} cannot be asked ({said})", remedy) from error

    async def away(self) -> Sequence[str]:
        """By the clients' signs of life; where there is no client yet, by a connection."""
        proxy = self._settings.proxy
        remedy = "look whether it runs, and at DROPGATE_BROKER_URL"
        if self._sessions:
            alive = all(session.is_alive for session in self._sessions)
            return [] if alive else [f"the proxy at {proxy} gives no sign of life: {remedy}"]
        connects = await asyncio.gather(*map(self._connects, proxy.split(";")))
        return [] if any(connects) else [f"the proxy at {proxy} cannot be reached: {remedy}"]

    async def backlog(self, topic: str, group: str) -> Backlog:
        return await self._backlog.look(topic, group)

    async def discarded(self, limit: int = LOOK_MAX) -> Sequence[DiscardedHalf]:
        return await self._discarded.look(min(limit, LOOK_MAX))

    async def forget_discarded(self, message_id: str) -> None:
        await self._discarded.forget(message_id)

    async def resume_discarded(self, message_id: str) -> None:
        await self._discarded.resume(message_id)

    async def dead_letters(self, group: str, limit: int = LOOK_MAX) -> Sequence[DeadLetter]:
        return await self._dead_letters.look(group, min(limit, LOOK_MAX))

    async def forget_dead_letter(self, group: str, message_id: str) -> None:
        await self._dead_letters.forget(group, message_id)

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
        keeper.add_done_callback(self._keeper_ended)
        self._sessions[session] = keeper
        return session

    async def _require_broker(self) -> None:
        """A proxy that has found no route for a topic says so for 20 s (`topicRouteServiceCacheRefreshSeconds`), and
        after a restart it answers before its broker is registered: so it is not asked before. Name servers that cannot
        be asked hold up nothing."""
        name_servers = self._settings.name_servers
        try:
            async with asyncio.timeout(self._settings.admin_timeout_s):
                known = await self._cluster.brokers()
        except BrokerRefused:
            known = []
        except (BrokerUnavailable, TimeoutError):
            return
        if not known:
            raise BrokerUnavailable(name_servers, "no broker is registered there")

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
        require_process(self._pid)
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

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        if keeper.cancelled() or self._failed is None or self._failed.done():
            return
        self._failed.set_exception(keeper.exception() or AssertionError("a client's keeper ended by itself"))

    async def _watch(self, failed: asyncio.Future[None]) -> None:
        await failed

    # --- what is missing ----------------------------------------------------------------------------------------------

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


def _remoting_options(settings: GrpcSettings) -> RemotingOptions:
    credentials = None
    if settings.access_key:
        credentials = Credentials(access_key=settings.access_key, secret_key=settings.secret_key)
    tls = ssl.create_default_context(cafile=settings.tls_ca) if settings.admin_tls else None
    return RemotingOptions(timeout_s=settings.admin_timeout_s, tls=tls, credentials=credentials)
