"""Half message, the local transaction, its end."""

from __future__ import annotations

import asyncio

from service.adapters.rocketmq.classic.checks import CheckDesk
from service.adapters.rocketmq.classic.half import Half
from service.adapters.rocketmq.classic.keeper import Open
from service.adapters.rocketmq.classic.library import NativeFailure
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.outgoing import type_of
from service.adapters.rocketmq.under_way import UnderWay
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import Decide, OutgoingMessage


class ClassicProducer:
    """Of one topic.

    The package sends, calls back and commits in one call, which takes a thread as long as that lasts. `decide` runs on
    our event loop all the same, in the caller's own task; the thread waits for its verdict."""

    def __init__(self, topic: str, open_: Open, desk: CheckDesk, settings: ClassicSettings) -> None:
        self.topic = topic
        self.desk = desk
        self._open = open_
        self._settings = settings
        self._under_way = UnderWay()

    async def transact(self, message: OutgoingMessage, decide: Decide) -> Verdict:
        type_of(message, half=True)
        require_sendable(message)
        with self._under_way.one_more():
            return await self._transact(message, decide)

    async def close(self) -> None:
        """Transactions under way end, within a bound; what is cut off there is asked about later."""
        await asyncio.gather(self._under_way.until_none(self._settings.close_timeout_s), self.desk.questions.close())

    async def _transact(self, message: OutgoingMessage, decide: Decide) -> Verdict:
        half = Half(self._settings.decide_timeout_s)
        sent = (await self._open()).send_half(message, half)
        try:
            await self._until_begun(message.topic, half, sent)
            verdict = await decide()
            half.end(verdict)
        finally:
            half.give_up()
            half.end(Verdict.UNKNOWN)
        await self._until_ended(message, sent)
        return verdict

    async def _until_begun(self, topic: str, half: Half, sent: asyncio.Future[None]) -> None:
        within_s = self._settings.call_timeout_s
        await asyncio.wait({half.begun, sent}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not half.begun.done() and sent.done():
            raise _unavailable(topic, sent)
        if half.give_up():
            raise BrokerUnavailable(topic, f"no half receipt within {within_s:g} s")
        await half.begun

    async def _until_ended(self, message: OutgoingMessage, sent: asyncio.Future[None]) -> None:
        """COMMIT is written, and no more is known of it: the broker does not answer it."""
        await asyncio.wait({sent}, timeout=self._settings.call_timeout_s)
        if not sent.done():
            warn(Action.BATCH_IN_DOUBT, topic=message.topic, key=message.key, why="its end is not sent yet")
        elif (error := sent.exception()) is not None:
            warn(Action.BATCH_IN_DOUBT, topic=message.topic, key=message.key, why=str(error))


def require_sendable(message: OutgoingMessage) -> None:
    if not message.body:
        raise BrokerRefused(message.topic, f"message {message.key!r} has no body: the native client sends none")


def _unavailable(topic: str, sent: asyncio.Future[None]) -> BrokerUnavailable:
    error = sent.exception()
    if isinstance(error, NativeFailure):
        return BrokerUnavailable(topic, str(error))
    return BrokerUnavailable(topic, repr(error) if error is not None else "it was stored and not begun")
