"""One consumer of a group: competing with the group's others, in this process and elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from sqlite3 import Connection

from service.adapters.embedded import store
from service.adapters.embedded.database import Database
from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.store import Receipt
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.messaging import Delivery, Outcome


class EmbeddedConsumer:
    """`wait_s` is real time, and what is due is the Clock's: a test may jump the clock under a waiting consumer."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: EmbeddedSettings,
        *,
        topic: str,
        group: str,
        invisible_s: float,
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._topic = topic
        self._group = group
        self._invisible_ms = round(invisible_s * 1000)
        self._next_due_ms: int | None = None
        self._closed = False

    async def receive(self, max_messages: int, wait_s: float) -> Sequence[Delivery]:
        deadline = asyncio.get_running_loop().time() + wait_s
        while not self._closed:
            ticket = self._database.changes.ticket()
            if held := await self._take(max_messages):
                return held
            if not await self._something_may_be_due(ticket, deadline):
                break
        return []

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        receipt = delivery.receipt
        if not isinstance(receipt, Receipt):
            raise TypeError("a delivery is settled by the transport that it came from")
        now_ms = self._clock.now_ms()

        def work(connection: Connection) -> bool:
            return store.settle(connection, receipt, outcome, now_ms)

        if not await self._database.write(work, wakes=True):
            warn(
                Action.LOOP_FAILED,
                loop=f"settle {self._group}",
                topic=delivery.topic,
                message_id=delivery.message_id,
                attempt=delivery.attempt,
                why="its invisible time was over: it was delivered again, or settled by another",
            )

    async def close(self) -> None:
        self._closed = True
        self._database.changes.happened()

    async def _take(self, max_messages: int) -> Sequence[Delivery]:
        """A look first: an idle consumer never takes the write lock."""
        self._next_due_ms = await self._database.read(
            lambda connection: store.next_due_ms(connection, self._topic, self._group)
        )
        now_ms = self._clock.now_ms()
        if self._closed or self._next_due_ms is None or self._next_due_ms > now_ms:
            return []

        def work(connection: Connection) -> Sequence[Delivery]:
            return store.claim(
                connection,
                self._topic,
                self._group,
                now_ms=now_ms,
                invisible_ms=self._invisible_ms,
                limit=max_messages,
            )

        return await self._database.write(work)

    async def _something_may_be_due(self, ticket: asyncio.Event, deadline: float) -> bool:
        """Wait for a change or for the next due time. False: the caller's time is over."""
        loop = asyncio.get_running_loop()
        while (left := deadline - loop.time()) > 0:
            await self._database.changes.wait(ticket, min(left, self._settings.poll_s))
            due = self._next_due_ms is not None and self._next_due_ms <= self._clock.now_ms()
            if ticket.is_set() or due:
                return True
        return False
