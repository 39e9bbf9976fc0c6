"""The order transaction (design §3.4): the one SQL transaction that turns candidates into orders. Nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.accepting import write_accepted
from service.core.claims import BatchClaims
from service.core.payments import apply_payment
from service.domain.event import event_of_order
from service.domain.ids import BatchId, SaleId
from service.domain.order import Claim, Decision, decide_orders
from service.domain.payment import PaymentOutcome
from service.domain.sale import Sale
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleTransaction


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What the transaction decided, sale by sale. `void`: their authority or epoch had changed, their batches start
    over."""

    decisions: dict[SaleId, Decision]
    void: frozenset[SaleId]
    payments: tuple[PaymentOutcome, ...] = ()
    """What became of the payments that had waited for these orders."""


class OrderTransaction:
    def __init__(self, orders: OrderStore, clock: Clock) -> None:
        self._orders = orders
        self._clock = clock

    async def run(self, batches: Sequence[BatchClaims]) -> Committed:
        """One transaction for all batches of all sales: accept up to `available`, reject the rest, COMMIT.

        Running it again is right: rows that it meets decide for themselves.
        """
        by_sale: dict[SaleId, list[BatchClaims]] = {}
        for batch in batches:
            by_sale.setdefault(batch.sale.id, []).append(batch)

        async def work(transaction: SaleTransaction) -> Committed:
            decisions: dict[SaleId, Decision] = {}
            void: set[SaleId] = set()
            payments: list[PaymentOutcome] = []
            for sale_id, of_sale in by_sale.items():
                locked = transaction.sales.get(sale_id)
                if locked is None or not _as_seen(locked, of_sale[0].sale):
                    void.add(sale_id)
                else:
                    decision = decisions[sale_id] = await self._decide(transaction, locked, of_sale)
                    payments += await _apply_waiting_payments(transaction, decision, self._clock.now_ms())
            return Committed(decisions=decisions, void=frozenset(void), payments=tuple(payments))

        committed = await self._orders.transact(list(by_sale), work)
        _note(committed)
        return committed

    async def _decide(self, transaction: SaleTransaction, sale: Sale, batches: Sequence[BatchClaims]) -> Decision:
        claims = await _without_losers(transaction, batches)
        rows = await transaction.orders([claim.candidate.reservation_id for claim in claims])
        ended = [row.id for row in rows.values() if row.is_final]
        decision = decide_orders(
            sale,
            claims,
            rows=rows,
            buyer_units=await transaction.buyer_units(sale.id, [claim.candidate.buyer_id for claim in claims]),
            now_ms=self._clock.now_ms(),
            owed=await transaction.owed_to(ended) if ended else {},
        )
        await _write(transaction, sale, decision, self._clock.now_ms())
        return decision


def _as_seen(locked: Sale, seen: Sale) -> bool:
    return (locked.authority, locked.epoch) == (seen.authority, seen.epoch)


async def _without_losers(transaction: SaleTransaction, batches: Sequence[BatchClaims]) -> list[Claim]:
    """Older batches skip the losers that their decision rows name: they heard a 409."""
    older: list[BatchId] = [batch.batch_id for batch in batches if batch.older]
    losers = await transaction.decisions(older) if older else {}
    return [
        claim
        for batch in batches
        for claim in batch.claims
        if claim.candidate.reservation_id not in losers.get(batch.batch_id, frozenset())
    ]


async def _write(transaction: SaleTransaction, sale: Sale, decision: Decision, now_ms: int) -> None:
    await write_accepted(transaction, sale, decision.accepted, now_ms)
    if decision.rejected:
        await transaction.insert_orders(decision.rejected)
        await transaction.emit([event_of_order(order, now_ms) for order in decision.rejected])
    if decision.owed:
        await transaction.owe(decision.owed)


async def _apply_waiting_payments(
    transaction: SaleTransaction, decision: Decision, now_ms: int
) -> list[PaymentOutcome]:
    """A payment that came before its order is applied in the transaction that makes it."""
    new = [order.id for order in (*decision.accepted, *decision.rejected)]
    if not new:
        return []
    outcomes = []
    for stored in await transaction.waiting_payments_of(new):
        order = (await transaction.orders([stored.payment.reservation_id])).get(stored.payment.reservation_id)
        outcomes.append(await apply_payment(transaction, stored.payment, order, may_yet_appear=True, now_ms=now_ms))
    return outcomes


def _note(committed: Committed) -> None:
    """After the COMMIT, and once: the work may have run several times."""
    for outcome in committed.payments:
        metrics.PAYMENTS.labels(outcome.value).inc(outcome is not PaymentOutcome.WAITING)
    for sale_id, decision in committed.decisions.items():
        metrics.ORDERS.labels(sale_id, "awaiting_payment").inc(len(decision.accepted))
        metrics.ORDERS.labels(sale_id, "rejected").inc(len(decision.rejected))
        if decision.accepted or decision.rejected:
            log(
                Action.ORDERS_MADE,
                sale_id=sale_id,
                accepted=len(decision.accepted),
                rejected=len(decision.rejected),
                existing=len(decision.existing),
            )
