"""One consumer of a group on one topic: the package's spends its wait on the empty one of two topics.

The proxy polls for at least 5 s, and a poll that is cut off may have popped messages that nobody sees until their
invisible time is over. So a poll is never cut off for a caller who waits less: it goes on, and what it brings is handed
out at the next `receive`, as long as enough of its invisible time is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.link import Link, Rpc
from service.adapters.rocketmq.grpc.session import Session
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.wire import Held, Subscriber
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import Dead, Delivery, Done, Outcome, RetryAfter

BATCH_MAX = 32
"""The broker's own bound."""
SHORTEST_S = 0.001
"""A delay of nothing is no delay to the proxy."""


class GrpcConsumer:
    """`fifo`: one message of a queue is held at a time. The broker blocks a queue while one of its messages is held,
    but hands out several at once; one at a time keeps a retry from being overtaken."""

    def __init__(
        self, session: Session, subscriber: Subscriber, settings: GrpcSettings, *, invisible_s: float, fifo: bool
    ) -> None:
        self.session = session
        self._subscriber = subscriber
        self._topic = settings.short(subscriber.topic)
        self._settings = settings
        self._invisible_s = invisible_s
        self._fifo = fifo
        self._turns = count()
        self._poll: asyncio.Task[None] | None = None
        self._ready: deque[tuple[float, Delivery]] = deque()
        """What was fetched and not handed out, and until when it may be."""
        self._closed = asyncio.Event()

    async def receive(self, max_messages: int, wait_s: float) -> Sequence[Delivery]:
        """A poll that fails is BrokerUnavailable here, after which the next call begins another. So is one that nobody
        can answer: in a black hole nothing fails for long, and a loop that hears nothing must not look like one that
        has nothing to do."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while not self._closed.is_set():
            if held := self._hand_out(max_messages):
                return held
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 and self._poll is not None:
                self.session.require_alive()
                break
            await self._polled(max_messages, max(0.0, left))
        return []

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        held = delivery.receipt
        if not isinstance(held, Held):
            raise TypeError("a delivery is settled by the transport that it came from")
        rpc, request = self._settling(held, delivery.message_id, outcome)
        answer = await self.session.link.call(rpc, held.endpoints, request)
        statuses = [answer.status, *(entry.status for entry in getattr(answer, "entries", ()))]
        if any(map(wire.is_void, statuses)):
            self._too_late(delivery)
            return
        for status in statuses:
            wire.check_status(status, delivery.topic)

    async def close(self) -> None:
        """What was fetched and not handed out comes again soon; what is held, after its invisible time."""
        self._closed.set()
        poll, self._poll = self._poll, None
        if poll is not None:
            poll.cancel()
            await asyncio.wait([poll])
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.close_timeout_s):
                await asyncio.gather(*(self._give_back(delivery) for _, delivery in self._ready))
        self._ready.clear()

    # --- polling ------------------------------------------------------------------------------------------------------

    def _hand_out(self, max_messages: int) -> Sequence[Delivery]:
        now_s = asyncio.get_running_loop().time()
        found: list[Delivery] = []
        while self._ready and len(found) < max_messages:
            until_s, delivery = self._ready.popleft()
            if now_s < until_s:
                found.append(delivery)
        return found

    async def _polled(self, max_messages: int, wait_s: float) -> None:
        """Wait for the poll that is under way, or for one begun here; not longer than the caller does."""
        poll = self._poll
        if poll is None:
            limit = 1 if self._fifo else min(max_messages, BATCH_MAX)
            poll = self._poll = asyncio.create_task(self._fetch(limit), name=f"receive {self._subscriber.group}")
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({poll, closed}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
        if poll.done() and self._poll is poll:
            self._poll = None
            await poll

    async def _fetch(self, limit: int) -> None:
        """One long poll. One that fails waits a little, so that nobody's loop runs hot."""
        try:
            await self._fetch_from(self.session.link, limit)
        except BrokerUnavailable:
            await asyncio.sleep(self._settings.poll_pause_s)
            raise

    async def _fetch_from(self, link: Link, limit: int) -> None:
        queue = await self._queue(link)
        request = self._subscriber.receive(
            queue.message_queue0(), limit=limit, invisible_s=self._invisible_s, poll_s=self._settings.poll_s
        )
        timeout_s = self._settings.poll_s + self._settings.call_timeout_s
        answers = await link.receive(queue.endpoints, request, timeout_s)
        messages = [answer.message for answer in answers if answer.HasField("message")]
        margin_s = min(self._settings.stale_margin_s, self._invisible_s / 2)
        until_s = asyncio.get_running_loop().time() + self._invisible_s - margin_s
        self._ready.extend((until_s, wire.delivery(message, self._topic, queue.endpoints)) for message in messages)
        if not messages:
            self._look_at([answer.status for answer in answers if answer.HasField("status")])

    async def _queue(self, link: Link) -> Any:
        """The broker of each turn; which of its queues is the broker's choice."""
        queues = [queue for queue in await link.learn(self._subscriber.topic) if queue.is_readable()]
        if not queues:
            raise BrokerRefused(self._subscriber.topic, "none of its queues may be read")
        proxies = {queue.endpoints.facade: queue for queue in link.answering(queues)}
        return proxies[sorted(proxies)[next(self._turns) % len(proxies)]]

    def _look_at(self, statuses: Sequence[Any]) -> None:
        for status in statuses:
            if not wire.is_nothing_there(status):
                wire.check_status(status, f"{self._subscriber.topic}, group {self._subscriber.group}")

    # --- settling -----------------------------------------------------------------------------------------------------

    def _settling(self, held: Held, message_id: str, outcome: Outcome) -> tuple[Rpc, Any]:
        match outcome:
            case Done():
                return "ack_message", self._subscriber.ack(held, message_id)
            case RetryAfter(delay_s=delay_s):
                delay_s = max(SHORTEST_S, delay_s)
                return "change_invisible_duration", self._subscriber.postpone(held, message_id, delay_s)
            case Dead():
                return "forward_message_to_dead_letter_queue", self._subscriber.bury(held, message_id)

    def _too_late(self, delivery: Delivery) -> None:
        warn(
            Action.LOOP_FAILED,
            loop=f"settle {self._subscriber.group}",
            topic=delivery.topic,
            message_id=delivery.message_id,
            attempt=delivery.attempt,
            why="its invisible time was over: it was delivered again, or settled by another",
        )

    async def _give_back(self, delivery: Delivery) -> None:
        with suppress(BrokerUnavailable):
            await self.settle(delivery, RetryAfter(delay_s=SHORTEST_S, why="closed before it was handed out"))
