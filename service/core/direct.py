"""Selling under the authority `sql`: a batch goes straight to the order transaction (design §3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.core.accepting import write_accepted
from service.core.answering import Answering
from service.core.batching import Ticket
from service.core.timeouts import PaymentTimeouts
from service.domain.errors import EpochChanged, OutcomeUnknown, Permanent, StoreUnavailable
from service.domain.ids import BatchId, BuyerId, SaleId, new_batch_id
from service.domain.order import Claim, Decision, Order, decide_orders
from service.domain.reservation import Reason
from service.domain.sale import Authority, Sale, older_may_still_win
from service.observability import metrics
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleTransaction

CONCURRENT_TRANSACTIONS = 2
"""Of one sale in this process: more would only queue at the sale's row lock and hold connections meanwhile."""


class DirectSelling:
    def __init__(self, orders: OrderStore, timeouts: PaymentTimeouts, clock: Clock) -> None:
        self._orders = orders
        self._timeouts = timeouts
        self._clock = clock
        self._slots: dict[SaleId, asyncio.Semaphore] = {}

    async def sell(self, sale: Sale, segment: int, tickets: Sequence[Ticket]) -> None:
        """Answer every ticket. A refusal leaves no row: it describes the moment and binds no key."""
        slots = self._slots.setdefault(sale.id, asyncio.Semaphore(CONCURRENT_TRANSACTIONS))
        accepted: list[Order] = []
        async with slots:
            await self._sell_halving(sale, segment, tickets, accepted)
        await self._timeouts.try_schedule(accepted)

    async def _sell_halving(self, sale: Sale, segment: int, tickets: Sequence[Ticket], accepted: list[Order]) -> None:
        """All in one transaction; a permanent error is bisected to the one request that has it."""
        answering = Answering(self._orders, sale, tickets, final=not older_may_still_win(sale, self._clock.now_ms()))
        try:
            decision = await self._decide(sale, segment, new_batch_id(), tickets)
        except (StoreUnavailable, EpochChanged):
            answering.refuse_all(OutcomeUnknown())
            return
        except Permanent as error:
            if len(tickets) == 1:
                answering.refuse_all(error)
                return
            middle = len(tickets) // 2
            for half in (tickets[:middle], tickets[middle:]):
                await self._sell_halving(sale, segment, half, accepted)
            return
        accepted += decision.accepted
        metrics.ORDERS.labels(sale.id, "awaiting_payment").inc(len(decision.accepted))
        await self._answer(sale, answering, decision)

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

    async def _answer(self, sale: Sale, answering: Answering, decision: Decision) -> None:
        for order in decision.accepted:
            answering.row(order.id, order, new=True)
        for order in decision.existing:
            answering.row(order.id, order)
        try:
            live = await self._live_of_refused(sale, decision)
        except StoreUnavailable:
            answering.refuse_all(OutcomeUnknown())
            return
        for order in decision.rejected:
            final = order.quantity > sale.capacity  # else units that are held may come back
            held = live.get(order.buyer_id) if order.reason is Reason.LIMIT_REACHED else None
            if held is not None and answering.gets_live_again(order.id):
                answering.live_row(order.id, held)
            else:
                code = "limit_reached" if order.reason is Reason.LIMIT_REACHED else "sold_out"
                answering.conflict(order.id, code, held=None if held is None else held.id, final=final)

    async def _live_of_refused(self, sale: Sale, decision: Decision) -> dict[BuyerId, Order]:
        buyers = {order.buyer_id for order in decision.rejected if order.reason is Reason.LIMIT_REACHED}
        return await self._orders.live_orders(sale.id, sorted(buyers)) if buyers else {}


def _claim(ticket: Ticket, batch_id: BatchId, segment: int, now_ms: int) -> Claim:
    return Claim(
        candidate=ticket.candidate,
        batch_id=batch_id,
        segment=segment,
        created_at_ms=now_ms,
        deadline_ms=None,
        holds_redis=False,
    )
