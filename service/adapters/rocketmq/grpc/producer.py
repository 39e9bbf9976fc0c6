"""Half message, the local transaction, its end; and plain publishing."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.checks import CheckDesk, end_half
from service.adapters.rocketmq.grpc.sdk import RpcEndpoints
from service.adapters.rocketmq.grpc.session import Session
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.wire import Half
from service.adapters.rocketmq.outgoing import lanes, type_of
from service.adapters.rocketmq.under_way import UnderWay
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import Decide, OutgoingMessage, TopicType


class GrpcProducer:
    """Of one topic."""

    def __init__(self, topic: str, session: Session, desk: CheckDesk, settings: GrpcSettings) -> None:
        self.topic = topic
        self.session = session
        self.desk = desk
        self._settings = settings
        self._under_way = UnderWay()

    async def transact(self, message: OutgoingMessage, decide: Decide) -> Verdict:
        with self._under_way.one_more():
            half = await self._send_half(message)
            verdict = await decide()
            await end_half(self.session, half, verdict, asked=False)
        return verdict

    async def close(self) -> None:
        """Transactions under way end, within a bound; what is cut off there is asked about later."""
        await asyncio.gather(self._under_way.until_none(self._settings.close_timeout_s), self.desk.questions.close())

    async def _send_half(self, message: OutgoingMessage) -> Half:
        endpoints, entry = await send(self.session, self._settings, message, half=True)
        return Half(
            topic=self._settings.full(message.topic),
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            endpoints=endpoints,
        )


class GrpcPublisher:
    """Its client is made by the first message: a process that publishes nothing needs none."""

    def __init__(self, session: Callable[[], Awaitable[Session]], settings: GrpcSettings) -> None:
        self._session = session
        self._settings = settings

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """In order within a FIFO group; different groups side by side. Raises once nothing is under way any more."""
        session = await self._session()
        room = asyncio.Semaphore(self._settings.sends_in_flight_max)

        async def one_after_the_other(lane: Sequence[OutgoingMessage]) -> None:
            async with room:
                for message in lane:
                    await send(session, self._settings, message, half=False)

        ends = await asyncio.gather(*map(one_after_the_other, lanes(messages)), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end


async def send(
    session: Session, settings: GrpcSettings, message: OutgoingMessage, *, half: bool
) -> tuple[RpcEndpoints, Any]:
    """Who took it, and the receipt. All attempts together have the time of one call, and the same message id."""
    type_ = type_of(message, half=half)
    request = wire.send(message, type_, settings.full(message.topic))
    try:
        async with asyncio.timeout(settings.call_timeout_s):
            return await _attempts(session, settings, message, type_, request)
    except TimeoutError:
        raise BrokerUnavailable(message.topic, f"not stored within {settings.call_timeout_s:g} s") from None


async def _attempts(
    session: Session, settings: GrpcSettings, message: OutgoingMessage, type_: TopicType, request: Any
) -> tuple[RpcEndpoints, Any]:
    """Another one only where no answer came: what the broker says it means."""
    topic = message.topic
    for attempt in range(1, settings.attempts + 1):
        link = session.link
        queues = [queue for queue in await link.learn(settings.full(topic)) if queue.is_writable()]
        _require(topic, type_, queues)
        endpoints = _pick(queues if message.fifo_group else link.answering(queues), message.fifo_group)
        try:
            answer = await link.call("send_message", endpoints, request)
        except BrokerUnavailable:
            if attempt == settings.attempts:
                raise
            await asyncio.sleep(settings.attempt_pause_s * 2 ** (attempt - 1))
            continue
        wire.check_status(answer.status, topic)
        return endpoints, answer.entries[0]
    raise AssertionError("attempts is at least 1")


def _require(topic: str, type_: TopicType, queues: Sequence[Any]) -> None:
    types = wire.types_of(queues)
    if type_.value not in types:
        raise BrokerRefused(topic, f"the topic is of type {', '.join(sorted(types)) or 'unknown'}, not {type_}")


_turns = count()


def _pick(queues: Sequence[Any], fifo_group: str | None) -> RpcEndpoints:
    """Which proxy is asked: in turn, so that the next attempt asks another one; for a FIFO group always the same. The
    proxy chooses the queue."""
    proxies = {queue.endpoints.facade: queue.endpoints for queue in queues}
    turn = next(_turns) if fifo_group is None else zlib.crc32(fifo_group.encode())
    return proxies[sorted(proxies)[turn % len(proxies)]]
