"""Half message, the local transaction, its end; and plain publishing."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from service.adapters.embedded import halves, store
from service.adapters.embedded.database import Database
from service.adapters.embedded.halves import Half
from service.adapters.embedded.settings import EmbeddedSettings
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.messaging import Decide, OutgoingMessage


class EmbeddedProducer:
    def __init__(self, database: Database, clock: Clock, settings: EmbeddedSettings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings

    async def transact(self, message: OutgoingMessage, decide: Decide) -> Verdict:
        half = await self._send_half(message)
        verdict = await decide()
        await end_half(self._database, self._clock, half, verdict)
        return verdict

    async def _send_half(self, message: OutgoingMessage) -> Half:
        now_ms = self._clock.now_ms()
        half = Half(message_id=store.new_message_id(), born_at_ms=now_ms, message=message)
        check_at_ms = now_ms + round(self._settings.transaction_timeout_s * 1000)
        await self._database.write(lambda connection: halves.put(connection, half, check_at_ms))
        return half


class EmbeddedPublisher:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """All or none are stored."""
        now_ms = self._clock.now_ms()

        def work(connection: Connection) -> None:
            store.publish(connection, messages, now_ms)

        await self._database.write(work, wakes=True)


async def end_half(database: Database, clock: Clock, half: Half, verdict: Verdict) -> None:
    """Best effort, as in RocketMQ: a verdict that does not reach the broker is asked for again."""
    if verdict is Verdict.UNKNOWN:
        return
    now_ms = clock.now_ms()
    try:
        await database.write(lambda connection: halves.end(connection, half, verdict, now_ms), wakes=True)
    except BrokerUnavailable as error:
        warn(Action.BATCH_IN_DOUBT, topic=half.message.topic, message_id=half.message_id, why=error.why)
