"""Payment time-outs (design §3.5): `expires_at` is the truth, the delay message an accelerator, the sweep the
guarantee."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.domain.batch import BATCH_MAX, SCHEMA, PaymentTimeoutMessage, encode
from service.domain.errors import Unavailable
from service.domain.ids import ReservationId, SaleId
from service.domain.order import Order
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.messaging import OutgoingMessage, Publisher

ARM_S = 2.0
"""How long anything may wait for the broker to take delay messages, which nothing depends on."""


class PaymentTimeouts:
    """Arms the delay messages of orders that wait for their payment."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def try_schedule(self, orders: Sequence[Order]) -> None:
        """In one call, a message for each sale and moment (one a transaction, as a rule). Best effort, and bounded."""
        due: dict[tuple[SaleId, int], list[ReservationId]] = {}
        for order in orders:
            if order.expires_at_ms is not None:
                due.setdefault((order.sale_id, order.expires_at_ms), []).append(order.id)
        messages = [
            self._message(sale_id, ids[start : start + BATCH_MAX], at_ms)
            for (sale_id, at_ms), ids in due.items()
            for start in range(0, len(ids), BATCH_MAX)
        ]
        if not messages:
            return
        try:
            async with asyncio.timeout(ARM_S):
                await self._publisher.publish(messages)
        except (Unavailable, TimeoutError) as error:
            warn(Action.LOOP_FAILED, loop="payment_timeouts", error=str(error) or f"no answer within {ARM_S:g} s")

    def _message(self, sale_id: SaleId, ids: Sequence[ReservationId], at_ms: int) -> OutgoingMessage:
        body = PaymentTimeoutMessage(schema=SCHEMA, sale_id=sale_id, reservation_ids=tuple(ids), expires_at_ms=at_ms)
        return OutgoingMessage(topic=self._topic, body=encode(body), key=ids[0], deliver_at_ms=at_ms)
