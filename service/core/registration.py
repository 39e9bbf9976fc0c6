"""Registering for check-backs at start, without traffic, and again until it succeeds (F06)."""

from __future__ import annotations

from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.ports.messaging import CheckBack, Decide, OutgoingMessage, TransactionalProducer, Transport


class RegisteredProducer:
    """The transport's producer, once it could be registered; until then every half message is refused."""

    def __init__(self, transport: Transport, topic: str, check_back: CheckBack) -> None:
        self._transport = transport
        self._topic = topic
        self._check_back = check_back
        self._producer: TransactionalProducer | None = None
        self.why_not: str | None = None
        """What the last try met; None: none has failed yet."""

    @property
    def is_registered(self) -> bool:
        return self._producer is not None

    async def turn(self) -> int:
        """One try, where none has succeeded yet."""
        if self._producer is not None:
            return 0
        try:
            self._producer = await self._transport.producer(self._topic, self._check_back)
        except BrokerUnavailable as error:
            self.why_not = f"{error.what}: {error.why}"
            raise
        return 1

    async def transact(self, message: OutgoingMessage, decide: Decide) -> Verdict:
        if self._producer is None:
            raise BrokerUnavailable("broker", f"not registered yet for {self._topic}")
        return await self._producer.transact(message, decide)
