"""Selling under the authority `sql`: a batch goes straight to the order transaction (design §3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from service.core.batching import Ticket
from service.core.timeouts import PaymentTimeouts
from service.domain.errors import Conflict, EpochChanged, IdempotencyKeyReused, OutcomeUnknown, StoreUnavailable
from service.domain.event import event_of_order
from service.domain.ids import BatchId, ReservationId, new_batch_id
from service.domain.order import Claim, Decision, Order, decide_orders
from service.domain.reservation import Reason
from service.domain.sale import Authority, Sale, older_may_still_win
from service.observability import metrics
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleTransaction, StockMovement

CONCURRENT_TRANSACTIONS = 2
"""Of one process: more would only queue at the sale's row lock and hold connections meanwhile."""


class DirectSelling:
    def __init__(self, orders: OrderStore, timeouts: PaymentTimeouts, clock: Clock) -> None:
        self._orders = orders
        self._timeouts = timeouts
        self._clock = clock
        self._slots = asyncio.Semaphore(CONCURRENT_TRANSACTIONS)

    async def sell(self, sale: Sale, segment: int, tickets: Sequence[Ticket]) -> None:
        """Answer every ticket. A refusal leaves no row: it describes the moment and binds no key."""
        batch_id = new_batch_id()
        try:
            async with self._slots:
                decision = await self._decide(sale, segment, batch_id, tickets)
        except (StoreUnavailable, EpochChanged):
            for ticket in tickets:
                ticket.refuse(OutcomeUnknown(ticket.candidate.reservation_id))
            return
        self._answer(sale, tickets, decision)
        with suppress(Exception):
            await self._timeouts.schedule(sale.id, decision.accepted)

    async def _decide(self, sale: Sale, segment: int, batch_id: BatchId, tickets: Sequence[Ticket]) -> Decision:
        ids = [ticket.candidate.reservation_id for ticket in tickets]
        buyers = [ticket.candidate.buyer_id for ticket in tickets]

        async def work(transaction: SaleTransaction) -> Decision:
            locked = transaction.sales.get(sale.id)
            if locked is None or (locked.authority, locked.epoch) != (Authority.SQL, sale.epoch):
                raise EpochChanged(sale.id, sale.epoch, 0 if locked is None else locked.epoch)
            now_ms = self._clock.now_ms()
            claims = [_claim(ticket, batch_id, segment, now_ms) for ticket in tickets]
            decision = decide_orders(
                locked,
                claims,
                rows=await transaction.orders(ids),
                buyer_units=await transaction.buyer_units(sale.id, buyers),
                now_ms=now_ms,
            )
            await write_accepted(transaction, locked, decision.accepted, now_ms)
            return decision

        return await self._orders.transact([sale.id], work)

    def _answer(self, sale: Sale, tickets: Sequence[Ticket], decision: Decision) -> None:
        accepted = {order.id: order for order in decision.accepted}
        existing = {order.id: order for order in decision.existing}
        refused = {order.id: order.reason for order in decision.rejected}
        metrics.ORDERS.labels(sale.id, "awaiting_payment").inc(len(accepted))
        final = not older_may_still_win(sale, self._clock.now_ms())
        first: set[ReservationId] = set()
        for ticket in tickets:
            id_ = ticket.candidate.reservation_id
            row = accepted.get(id_) or existing.get(id_)
            if row is None:
                code = "limit_reached" if refused[id_] is Reason.LIMIT_REACHED else "sold_out"
                never = final and ticket.candidate.quantity > sale.capacity  # else units that are held may come back
                ticket.refuse(Conflict(code, sale_id=sale.id, reservation_id=id_, final=never))
            elif row.fingerprint != ticket.candidate.fingerprint:
                ticket.refuse(IdempotencyKeyReused(id_))
            else:
                ticket.answer(row.as_reservation(), replayed=id_ in existing or id_ in first)
            first.add(id_)


def _claim(ticket: Ticket, batch_id: BatchId, segment: int, now_ms: int) -> Claim:
    return Claim(
        candidate=ticket.candidate,
        batch_id=batch_id,
        segment=segment,
        created_at_ms=now_ms,
        deadline_ms=None,
        holds_redis=False,
    )


async def write_accepted(transaction: SaleTransaction, sale: Sale, accepted: Sequence[Order], now_ms: int) -> None:
    """Rows, stock, buyer counters and events of accepted orders: the writing half of the order transaction."""
    if not accepted:
        return
    await transaction.insert_orders(accepted)
    units: dict[str, int] = {}
    for order in accepted:
        units[order.buyer_id] = units.get(order.buyer_id, 0) + order.quantity
    await transaction.add_buyer_units(
        sale.id, {order.buyer_id: units[order.buyer_id] for order in accepted}, sale.rules.limit_per_buyer
    )
    movement = StockMovement(
        key=f"order:{accepted[0].id}",
        sale_id=sale.id,
        kind="orders",
        delta=-sum(order.quantity for order in accepted),
        at_ms=now_ms,
    )
    await transaction.move_stock([movement])
    await transaction.emit([event_of_order(order, now_ms) for order in accepted])
