"""The outbox relay (design §3.7): events leave in the order of their rows, at least once; consumers dedupe by event
id."""

from __future__ import annotations

from service.observability import metrics
from service.ports.clock import Clock
from service.ports.messaging import OutgoingMessage, Publisher
from service.ports.orders import OrderStore

EVENTS_A_TURN = 500
"""One turn's bound: about a second of the broker's time."""


class OutboxRelay:
    def __init__(self, orders: OrderStore, publisher: Publisher, clock: Clock, topic: str) -> None:
        self._orders = orders
        self._publisher = publisher
        self._clock = clock
        self._topic = topic

    async def turn(self) -> int:
        """Publish the oldest unsent events, then mark them; the number sent. A crash between sends them again."""
        events = await self._orders.unsent_events(EVENTS_A_TURN)
        age_ms = self._clock.now_ms() - events[0].created_at_ms if events else 0
        metrics.OUTBOX_AGE_SECONDS.set(max(0, age_ms) / 1000)
        if not events:
            return 0
        messages = [
            OutgoingMessage(
                topic=self._topic,
                body=event.body,
                key=event.id,
                fifo_group=event.reservation_id,
                properties={"ce_type": event.type.value, "ce_id": event.id},
            )
            for event in events
        ]
        await self._publisher.publish(messages)
        await self._orders.mark_sent([event.id for event in events])
        metrics.EVENTS_SENT.inc(len(events))
        return len(events)
