"""The payment_timeout consumer's use case: a delay message names orders that may be due (design §3.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.core.ending import EndingService
from service.domain.batch import decode_payment_timeout
from service.domain.errors import DropgateError, Unavailable, UndecodableMessage, UnknownSchema
from service.domain.ids import SaleId
from service.domain.order import Order
from service.domain.reservation import Status
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.messaging import Dead, Delivery, Done, Outcome, RetryAfter
from service.ports.orders import OrderStore

RETRY_S = 5.0
RETRY_MAX_S = 300.0
"""What SQL refuses for good comes again ever more rarely, and goes to the dead letters; the keeper's sweep tries on."""
EARLY_MIN_S, EARLY_MAX_S = 1.0, 300.0
"""An early message waits at its consumer, in pieces: a time to come does not hold back a broker whose clock is ahead of
ours, a pause does. A window is extended by 5 minutes at most, and every transport can pause for as long."""

SALES_AT_ONCE = 4
"""Sales side by side: one that is stuck holds up the others only together with three more."""
PROCESS_S = 20.0
"""For one receive: two transactions that take all their time. The messages are held for 30 s (INVISIBLE_S); what is not
done by then comes again."""


class PaymentExpiry:
    def __init__(self, orders: OrderStore, endings: EndingService, clock: Clock) -> None:
        self._orders = orders
        self._endings = endings
        self._clock = clock

    async def process(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        """Sale by sale, side by side, since one may be stuck; of one sale one after the other."""
        until_s = asyncio.get_running_loop().time() + PROCESS_S
        at_once = asyncio.Semaphore(SALES_AT_ONCE)

        async def of_sale(its: list[Delivery]) -> list[tuple[Delivery, Outcome]]:
            async with at_once:
                return [(delivery, await self._in_time(delivery, until_s)) for delivery in its]

        return [it for settled in await asyncio.gather(*map(of_sale, _by_sale(deliveries))) for it in settled]

    async def _in_time(self, delivery: Delivery, until_s: float) -> Outcome:
        try:
            async with asyncio.timeout_at(until_s):
                return await self._one(delivery)
        except TimeoutError:
            why = f"not done within {PROCESS_S:g} s of its receive"
            warn(Action.MESSAGE_WAITS, message_id=delivery.message_id, attempt=delivery.attempt, why=why)
            return RetryAfter(delay_s=RETRY_S, why=why)

    async def _one(self, delivery: Delivery) -> Outcome:
        try:
            message = decode_payment_timeout(delivery.body)
        except UnknownSchema as error:
            return RetryAfter(delay_s=RETRY_MAX_S, why=str(error))
        except UndecodableMessage as error:
            warn(Action.MESSAGE_DEAD, message_id=delivery.message_id, error=str(error))
            return Dead(why=str(error))
        try:
            rows = await self._orders.orders(message.reservation_ids)
            return await self._end([order for order in rows.values() if order.status is Status.AWAITING_PAYMENT])
        except DropgateError as error:
            delay_s = min(RETRY_MAX_S, RETRY_S * 2 ** min(delivery.attempt - 1, 10))
            warn(Action.MESSAGE_WAITS, message_id=delivery.message_id, attempt=delivery.attempt, why=str(error))
            return RetryAfter(delay_s=RETRY_S if isinstance(error, Unavailable) else delay_s, why=str(error))

    async def _end(self, unpaid: Sequence[Order]) -> Outcome:
        """Due ones are cancelled; for early ones (the window was extended, the broker was quick) it comes again."""
        now_ms = self._clock.now_ms()
        due = [order for order in unpaid if (order.expires_at_ms or 0) <= now_ms]
        left_ms = [(order.expires_at_ms or 0) - now_ms for order in unpaid if (order.expires_at_ms or 0) > now_ms]
        if due:
            await self._endings.cancel_expired(due)
        if not left_ms:
            return Done()
        return RetryAfter(delay_s=min(max(EARLY_MIN_S, min(left_ms) / 1000), EARLY_MAX_S), why="before its time")


def _by_sale(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    by_sale: dict[SaleId | None, list[Delivery]] = {}
    for delivery in deliveries:
        by_sale.setdefault(_sale_of(delivery), []).append(delivery)
    return list(by_sale.values())


def _sale_of(delivery: Delivery) -> SaleId | None:
    """None: unreadable, which asks no store for anything."""
    try:
        return decode_payment_timeout(delivery.body).sale_id
    except UndecodableMessage:
        return None
