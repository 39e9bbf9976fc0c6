"""Check-backs: the native client hands a question over, our event loop answers the broker that asked, by the remoting
client.

So a question that hangs takes no native thread, of which there is one, and the broker says whether it took the answer.
"""

from __future__ import annotations

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.classic.link import Question
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.questions import Questions
from service.adapters.rocketmq.remoting.messages import UNIQUE_ID, StoredMessage
from service.adapters.rocketmq.remoting.producers import BrokerProducers
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import CheckBack, CheckRequest


class CheckDesk:
    """Of one topic."""

    def __init__(self, topic: str, check_back: CheckBack, settings: ClassicSettings, operator: Operator) -> None:
        self._topic, self._full = topic, settings.full(topic)
        self._operator = operator
        self._brokers: tuple[str, ...] = ()
        """As the name servers said last: one that is away for a moment must not cost an answer."""
        self.questions = Questions(check_back, settings)

    def asked(self, question: Question) -> None:
        """On our event loop."""
        request = CheckRequest(
            topic=self._topic,
            message_id=question.message_id,
            key=question.key,
            body=question.body,
            check=question.check,
        )

        async def answer(verdict: Verdict) -> None:
            if verdict is not Verdict.UNKNOWN:
                await self._end(question, verdict)

        self.questions.ask(request, answer)

    async def _end(self, question: Question, verdict: Verdict) -> None:
        """Best effort, as the broker's own is: a verdict that does not reach it is asked for again."""
        try:
            broker = BrokerProducers(self._operator.client, await self._holder(question))
            await broker.end(self._full, self._full, question.message_id, question.place, verdict)
        except BrokerUnavailable as error:
            warn(Action.BATCH_IN_DOUBT, topic=self._topic, message_id=question.message_id, why=error.why)

    async def _holder(self, question: Question) -> str:
        """The package does not say which broker asked."""

        def is_it(message: StoredMessage) -> bool:
            return message.properties.get(UNIQUE_ID) == question.message_id

        found = await self._operator.cluster.holder(await self._all(), question.place.commit_log_offset, is_it)
        if found is None:
            raise BrokerUnavailable(self._topic, f"no broker that answers has half message {question.message_id}")
        return found

    async def _all(self) -> tuple[str, ...]:
        try:
            parts = await self._operator.cluster.name_servers.route(self._full)
            self._brokers = tuple(part.address for part in parts) or self._brokers
        except BrokerUnavailable:
            if not self._brokers:
                raise
        return self._brokers
