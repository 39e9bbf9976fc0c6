"""Payment time-outs (design §3.5): `expires_at` is the truth, the delay message an accelerator, the sweep the
guarantee."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.batch import SCHEMA, PaymentTimeoutMessage, encode
from service.domain.ids import ReservationId, SaleId
from service.domain.order import Order
from service.ports.messaging import OutgoingMessage, Publisher


class PaymentTimeouts:
    """Arms the delay message of orders that wait for their payment. Best effort: whoever calls may ignore its
    failure."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def schedule(self, sale_id: SaleId, orders: Sequence[Order]) -> None:
        """One message for all orders that expire at the same moment: one a batch as a rule."""
        due: dict[int, list[ReservationId]] = {}
        for order in orders:
            if order.expires_at_ms is not None:
                due.setdefault(order.expires_at_ms, []).append(order.id)
        messages = [self._message(sale_id, ids, at_ms) for at_ms, ids in due.items()]
        if messages:
            await self._publisher.publish(messages)

    def _message(self, sale_id: SaleId, ids: Sequence[ReservationId], at_ms: int) -> OutgoingMessage:
        body = PaymentTimeoutMessage(schema=SCHEMA, sale_id=sale_id, reservation_ids=tuple(ids), expires_at_ms=at_ms)
        return OutgoingMessage(topic=self._topic, body=encode(body), key=ids[0], deliver_at_ms=at_ms)
