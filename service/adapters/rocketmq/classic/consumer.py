"""A consumer of a group on one topic. Those of one group and topic in a process share a subscription: a queue is one
client's at a time, and what lies in the queue of a consumer that does not receive would reach no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.classic.bounds import DEFAULT, ConsumerBounds
from service.adapters.rocketmq.classic.level_desk import LevelDesk
from service.adapters.rocketmq.classic.lines import Held
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.subscription import Subscription
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import Dead, Delivery, Done, Outcome, RetryAfter


class ClassicConsumer:
    """Made by `ConsumerDesk.open`."""

    def __init__(
        self, subscription: Subscription, leave: Callable[[], Awaitable[None]], *, group: str, invisible_s: float
    ) -> None:
        self._subscription = subscription
        self._leave = leave
        self._group = group
        self._invisible_s = invisible_s
        self._closed = asyncio.Event()

    async def receive(self, max_messages: int, wait_s: float) -> Sequence[Delivery]:
        """BrokerUnavailable where nothing came and the client has no sign of life: a loop that hears nothing must not
        look like one that has nothing to do."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while not self._closed.is_set():
            if held := self._subscription.take(max_messages, self._invisible_s):
                return [self._delivery(it) for it in held]
            if (left_s := deadline_s - loop.time()) <= 0:
                self._subscription.require_alive()
                break
            await self._subscription.wait(left_s)
        return []

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        held = delivery.receipt
        if not isinstance(held, Held):
            raise TypeError("a delivery is settled by the transport that it came from")
        if not await self._settle(held, outcome):
            warn(
                Action.LOOP_FAILED,
                loop=f"settle {self._group}",
                topic=delivery.topic,
                message_id=delivery.message_id,
                attempt=delivery.attempt,
                why="its invisible time was over, or its client was replaced: it comes again",
            )

    async def close(self) -> None:
        """The subscription closes with its last consumer."""
        if not self._closed.is_set():
            self._closed.set()
            self._subscription.wake()
            await self._leave()

    async def _settle(self, held: Held, outcome: Outcome) -> bool:
        match outcome:
            case Done():
                return self._subscription.done(held)
            case RetryAfter(delay_s=delay_s):
                return await self._subscription.put_off(held, delay_s)
            case Dead():
                return await self._subscription.bury(held)

    def _delivery(self, held: Held) -> Delivery:
        message = held.message
        return Delivery(
            topic=self._subscription.topic,
            message_id=message.message_id,
            key=message.key,
            body=message.body,
            attempt=held.attempt,
            born_at_ms=message.born_at_ms,
            receipt=held,
            properties=message.properties,
        )


class ConsumerDesk:
    """All consumers of a transport."""

    def __init__(self, settings: ClassicSettings, operator: Operator, bounds: ConsumerBounds = DEFAULT) -> None:
        self._settings, self._operator, self._bounds = settings, operator, bounds
        self._levels = LevelDesk(operator.cluster, settings)
        self._subscriptions: dict[tuple[str, str], tuple[Subscription, set[ClassicConsumer]]] = {}
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}
        """As many as the code names."""

    async def open(
        self,
        topic: str,
        group: str,
        *,
        invisible_s: float,
        fifo: bool,
        on_keeper: Callable[[asyncio.Task[None]], None] = lambda _: None,
    ) -> ClassicConsumer:
        """BrokerRefused: the topic or the group is missing, or others consume in it in another way. `on_keeper` gets
        the task that keeps the client alive: one that ends by itself is a fault."""
        async with self._opening.setdefault((topic, group), asyncio.Lock()):
            subscription, consumers = self._subscriptions.get((topic, group), (None, set()))
            if subscription is None:
                subscription = Subscription(
                    self._settings,
                    self._operator,
                    self._levels,
                    self._bounds,
                    topic=topic,
                    group=group,
                    fifo=fifo,
                )
                on_keeper(await subscription.open())
                self._subscriptions[topic, group] = (subscription, consumers)
            consumer = ClassicConsumer(
                subscription, lambda: self._left(topic, group, consumer), group=group, invisible_s=invisible_s
            )
            consumers.add(consumer)
            return consumer

    async def close(self) -> None:
        everyone = [consumer for _, consumers in self._subscriptions.values() for consumer in consumers]
        await asyncio.gather(*(consumer.close() for consumer in everyone))

    async def _left(self, topic: str, group: str, consumer: ClassicConsumer) -> None:
        subscription, consumers = self._subscriptions[topic, group]
        consumers.discard(consumer)
        if not consumers:
            del self._subscriptions[topic, group]
            await subscription.close()
