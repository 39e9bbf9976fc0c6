"""Check-backs: questions come off the client's stream, and are answered on our event loop, many at a time.

An UNKNOWN is not sent at all: any answer makes the proxy forget the question, and the broker asks again by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.sdk import RpcEndpoints
from service.adapters.rocketmq.grpc.session import Session
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.wire import Half
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import CheckBack, CheckRequest


class CheckDesk:
    """Of one topic, whose name a question says without its namespace."""

    def __init__(self, topic: str, check_back: CheckBack, settings: GrpcSettings) -> None:
        self._topic = topic
        self.check_back = check_back
        self._settings = settings
        self._room = asyncio.Semaphore(settings.checks_in_flight_max)
        self._open: set[asyncio.Task[None]] = set()
        self._session: Session | None = None

    def answer_through(self, session: Session) -> None:
        self._session = session

    def asked(self, endpoints: RpcEndpoints, message: Any, transaction_id: str) -> None:
        """On our event loop. What is not answered is asked again, so a flood may be cut."""
        if len(self._open) >= self._settings.checks_waiting_max:
            return
        came_s = asyncio.get_running_loop().time()
        half = Half(
            topic=self._settings.full(self._topic),
            message_id=message.system_properties.message_id,
            transaction_id=transaction_id,
            endpoints=endpoints,
        )
        request = wire.check_request(message, self._topic)
        task = asyncio.create_task(self._answer(half, request, came_s), name="check-back")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Let the open questions be answered: each has its deadline, and all of them have ours."""
        if self._open:
            await asyncio.wait(self._open, timeout=self._settings.close_timeout_s)
        for task in self._open:
            task.cancel()

    async def _answer(self, half: Half, request: CheckRequest, came_s: float) -> None:
        async with self._room:
            if asyncio.get_running_loop().time() - came_s > self._settings.check_age_max_s:
                return
            verdict = await self._verdict(request)
            if self._session is not None:
                await end_half(self._session, half, verdict, asked=True)

    async def _verdict(self, request: CheckRequest) -> Verdict:
        try:
            async with asyncio.timeout(self._settings.check_deadline_s):
                return await self.check_back(request)
        # The one edge where foreign code's exceptions end (F10, F17): one bad question must neither stop the others nor
        # hide them, and what cannot be answered is UNKNOWN.
        except Exception as error:  # noqa: BLE001
            warn(
                Action.LOOP_FAILED,
                loop="check-back",
                topic=request.topic,
                message_id=request.message_id,
                check=request.check,
                why=repr(error),
            )
            return Verdict.UNKNOWN


async def end_half(session: Session, half: Half, verdict: Verdict, *, asked: bool) -> None:
    """Best effort, as the broker's own is: a verdict that does not reach it is asked for again. The proxy takes a
    transaction's end once per question, so it is not sent twice."""
    if verdict is Verdict.UNKNOWN:
        return
    try:
        link = session.link
        answer = await link.call("end_transaction", half.endpoints, wire.end(half, verdict, asked=asked))
        wire.check_status(answer.status, half.topic)
    except BrokerUnavailable as error:
        warn(Action.BATCH_IN_DOUBT, topic=half.topic, message_id=half.message_id, why=error.why)
