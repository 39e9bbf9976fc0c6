"""Check-backs: questions come off the client's stream, and their answers go back to the proxy that asked.

An UNKNOWN is not sent at all: any answer makes the proxy forget the question, and the broker asks again by itself.
"""

from __future__ import annotations

from typing import Any

from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.sdk import RpcEndpoints
from service.adapters.rocketmq.grpc.session import Session
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.wire import Half
from service.adapters.rocketmq.questions import Questions
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import CheckBack


class CheckDesk:
    """Of one topic, whose name a question says without its namespace."""

    def __init__(self, topic: str, check_back: CheckBack, settings: GrpcSettings) -> None:
        self._topic = topic
        self._settings = settings
        self.questions = Questions(check_back, settings)
        self._session: Session | None = None

    def answer_through(self, session: Session) -> None:
        self._session = session

    def asked(self, endpoints: RpcEndpoints, message: Any, transaction_id: str) -> None:
        """On our event loop."""
        half = Half(
            topic=self._settings.full(self._topic),
            message_id=message.system_properties.message_id,
            transaction_id=transaction_id,
            endpoints=endpoints,
        )

        async def answer(verdict: Verdict) -> None:
            if self._session is not None:
                await end_half(self._session, half, verdict, asked=True)

        self.questions.ask(wire.check_request(message, self._topic), answer)


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
