"""The check-back pump: asks this process about half messages that nobody ended.

A broker scans by itself; here every process that registered a `check_back` scans for its topics, also with no traffic,
and claims each question in SQLite, so that two processes do not answer one question. Each half message has its own
schedule (first after the transaction time-out, then at the interval), where RocketMQ scans all at once: never later.
While no registered process runs nobody scans: no question is asked and none is counted, where RocketMQ counts on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from sqlite3 import Connection

from service.adapters.embedded import halves
from service.adapters.embedded.database import Database
from service.adapters.embedded.halves import Half
from service.adapters.embedded.producer import end_half
from service.adapters.embedded.settings import EmbeddedSettings
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.messaging import CheckBack


class CheckPump:
    def __init__(self, database: Database, clock: Clock, settings: EmbeddedSettings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._handlers: dict[str, CheckBack] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def register(self, topic: str, check_back: CheckBack) -> None:
        self._handlers[topic] = check_back

    async def run(self) -> None:
        while True:
            try:
                await self.turn()
            except BrokerUnavailable as error:
                warn(Action.LOOP_FAILED, loop="check-backs", why=error.why)
            await asyncio.sleep(self._settings.check_poll_s)

    async def turn(self) -> None:
        """Claim and ask what is due, as far as there is room."""
        for topic in list(self._handlers):
            for half in await self._claim(topic):
                task = asyncio.create_task(self._ask(half), name=f"check-back {half.message_id}")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def close(self) -> None:
        """Let the open questions be answered: each has its deadline."""
        if self._asking:
            await asyncio.wait(self._asking)

    async def _claim(self, topic: str) -> Sequence[Half]:
        room = self._settings.checks_in_flight_max - len(self._asking)
        now_ms = self._clock.now_ms()
        if room <= 0 or not await self._database.read(lambda c: halves.check_is_due(c, topic, now_ms)):
            return []

        def work(connection: Connection) -> Sequence[Half]:
            return halves.claim_checks(
                connection,
                topic,
                now_ms=now_ms,
                next_check_ms=now_ms + round(self._settings.check_interval_s * 1000),
                check_max=self._settings.check_max,
                limit=room,
            )

        return await self._database.write(work)

    async def _ask(self, half: Half) -> None:
        await end_half(self._database, self._clock, half, await self._verdict(half))

    async def _verdict(self, half: Half) -> Verdict:
        check_back = self._handlers[half.message.topic]
        try:
            async with asyncio.timeout(self._settings.check_deadline_s):
                return await check_back(half.request())
        # The one edge where foreign code's exceptions end (F10, F17): one bad question must neither stop the pump nor
        # hide the others, and what cannot be answered is UNKNOWN.
        except Exception as error:  # noqa: BLE001
            warn(
                Action.LOOP_FAILED,
                loop="check-back",
                topic=half.message.topic,
                message_id=half.message_id,
                check=half.checks,
                why=repr(error),
            )
            return Verdict.UNKNOWN
