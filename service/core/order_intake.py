"""The order consumer's use case: batch messages in, orders out (design §3.4). Ack depends on COMMIT alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.core.claims import BatchClaims, ClaimsFinder, Waiting
from service.core.directory import SaleDirectory
from service.core.order_transaction import Committed, OrderTransaction
from service.core.release import note_write_offs
from service.core.timeouts import PaymentTimeouts
from service.domain.batch import BatchMessage, decode_batch
from service.domain.errors import NotFound, Permanent, StockUnavailable, Unavailable, UndecodableMessage
from service.domain.ids import BatchId, ReservationId, SaleId
from service.domain.order import Decision, Order
from service.domain.stock import Effect, Lost, Slot
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.messaging import Dead, Delivery, Done, Outcome, RetryAfter
from service.ports.orders import OrderStore
from service.ports.stock import Stock

WAIT_S = 1.0
"""A batch that waits for its sale (loading, lost) comes again this soon: a load takes seconds."""
RETRY_MAX_S = 30.0
"""Longest pause between tries while a store is away: the delay doubles from WAIT_S up to here."""


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What became of batches, by id. Ids in `failed` met a permanent error of their own."""

    done: frozenset[BatchId]
    waiting: dict[BatchId, str]
    failed: dict[BatchId, str]


class OrderIntake:
    def __init__(
        self,
        *,
        directory: SaleDirectory,
        claims: ClaimsFinder,
        transaction: OrderTransaction,
        stock: Stock,
        orders: OrderStore,
        timeouts: PaymentTimeouts,
    ) -> None:
        self._directory = directory
        self._finder = claims
        self._transaction = transaction
        self._stock = stock
        self._orders = orders
        self._timeouts = timeouts

    async def process(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        """An outcome for each delivery, once the transaction of all of them is committed."""
        settled: list[tuple[Delivery, Outcome]] = []
        decoded: list[tuple[Delivery, BatchMessage]] = []
        for delivery in deliveries:
            try:
                decoded.append((delivery, decode_batch(delivery.body)))
            except UndecodableMessage as error:
                warn(Action.MESSAGE_DEAD, message_id=delivery.message_id, error=str(error))
                settled.append((delivery, Dead(why=str(error))))
        batches = {batch.batch_id: batch for _, batch in decoded}
        try:
            intake = await self.decide(list(batches.values()))
        except Unavailable as error:
            return settled + [(delivery, _later(delivery, str(error))) for delivery, _ in decoded]
        return settled + [(delivery, _outcome(delivery, batch, intake)) for delivery, batch in decoded]

    async def decide(self, batches: Sequence[BatchMessage]) -> Intake:
        """Make the orders of these batches. Unavailable: nothing is known of any of them, all come again."""
        found: dict[BatchId, BatchClaims | Waiting] = {}
        by_sale: dict[SaleId, list[BatchMessage]] = {}
        for batch in batches:
            by_sale.setdefault(batch.sale_id, []).append(batch)
        for sale_id, of_sale in by_sale.items():
            found.update(await self._find(sale_id, of_sale))
        waiting = {id_: claims.why for id_, claims in found.items() if isinstance(claims, Waiting)}
        ready = [claims for claims in found.values() if isinstance(claims, BatchClaims)]
        return await self._commit(ready, waiting)

    async def decide_stored(self, found: Sequence[BatchClaims]) -> Intake:
        """The keeper's sweep: the same transaction on claims from stored bodies; no message is sent again."""
        return await self._commit(list(found), {})

    # --- finding ------------------------------------------------------------------------------------------------------

    async def _find(self, sale_id: SaleId, batches: Sequence[BatchMessage]) -> dict[BatchId, BatchClaims | Waiting]:
        """One sale's trouble with its Redis keeps only its own batches waiting."""
        try:
            sale = await self._directory.current(sale_id)
        except NotFound:
            return {batch.batch_id: Waiting(why="the sale is not known") for batch in batches}
        try:
            return await self._finder.find(sale, batches)
        except StockUnavailable as error:
            return {batch.batch_id: Waiting(why=str(error)) for batch in batches}

    # --- committing ---------------------------------------------------------------------------------------------------

    async def _commit(self, ready: Sequence[BatchClaims], waiting: dict[BatchId, str]) -> Intake:
        empty = [claims for claims in ready if not claims.claims]
        for claims in empty:
            if claims.ordered:
                continue
            metrics.MESSAGES_WITHOUT_RECORD.inc()
            log(Action.MESSAGE_WITHOUT_RECORD, sale_id=claims.sale.id, batch_id=claims.batch_id)
        done = {claims.batch_id for claims in empty}
        failed: dict[BatchId, str] = {}
        await self._commit_halving([claims for claims in ready if claims.claims], done, waiting, failed)
        return Intake(done=frozenset(done), waiting=waiting, failed=failed)

    async def _commit_halving(
        self,
        batches: Sequence[BatchClaims],
        done: set[BatchId],
        waiting: dict[BatchId, str],
        failed: dict[BatchId, str],
    ) -> None:
        """All in one transaction; a permanent error is bisected to the one candidate that has it."""
        if not batches:
            return
        try:
            committed = await self._transaction.run(batches)
        except Permanent as error:
            halves = _halves(batches)
            if halves is None:
                claim = batches[0].claims[0]
                failed[batches[0].batch_id] = f"{claim.candidate.reservation_id}: {error}"
                return
            for half in halves:
                await self._commit_halving(half, done, waiting, failed)
            done -= failed.keys()
            return
        for batch in batches:
            if batch.sale.id in committed.void:
                waiting[batch.batch_id] = "the authority changed: starts over"
            else:
                done.add(batch.batch_id)
        await self._after_commit(batches, committed)

    # --- best effort, repaired by sweeps ------------------------------------------------------------------------------

    async def _after_commit(self, batches: Sequence[BatchClaims], committed: Committed) -> None:
        for batch in batches:
            decision = committed.decisions.get(batch.sale.id)
            if decision is None:
                continue
            try:
                await self._confirm(batch, decision)
                await self._timeouts.schedule(batch.sale.id, _accepted_of(batch, decision))
            except Unavailable as error:
                warn(Action.LOOP_FAILED, loop="after_commit", batch_id=batch.batch_id, error=str(error))

    async def _confirm(self, batch: BatchClaims, decision: Decision) -> None:
        for slot, effects in _effects(batch, decision).items():
            reply = await self._stock.confirm(slot, batch.batch_id, effects)
            if isinstance(reply, Lost):
                await self._directory.report_lost(batch.sale, reply.found)
                return
            owed = [item for item in decision.owed if item.reservation_id in effects]
            if owed:
                await self._orders.clear_owed(owed)
                note_write_offs(slot, owed, reply.changed)


def _halves(batches: Sequence[BatchClaims]) -> tuple[list[BatchClaims], list[BatchClaims]] | None:
    """The batches in two, or one batch's claims in two; None: a single claim."""
    if len(batches) > 1:
        middle = len(batches) // 2
        return list(batches[:middle]), list(batches[middle:])
    claims = batches[0].claims
    if len(claims) == 1:
        return None
    middle = len(claims) // 2
    return [replace(batches[0], claims=claims[:middle])], [replace(batches[0], claims=claims[middle:])]


def _accepted_of(batch: BatchClaims, decision: Decision) -> list[Order]:
    ids = {claim.candidate.reservation_id for claim in batch.claims}
    return [order for order in decision.accepted if order.id in ids]


def _effects(batch: BatchClaims, decision: Decision) -> dict[Slot, dict[ReservationId, Effect]]:
    """What confirm.lua shall do with each unit that a slot holds for this batch."""
    owed = {item.reservation_id: item.effect for item in decision.owed}
    effects: dict[Slot, dict[ReservationId, Effect]] = {}
    for claim in batch.claims:
        if claim.holds_redis:
            slot = Slot(sale_id=batch.sale.id, segment=claim.segment, epoch=batch.sale.epoch)
            id_ = claim.candidate.reservation_id
            effects.setdefault(slot, {})[id_] = owed.get(id_, Effect.KEEP)
    return effects


def _outcome(delivery: Delivery, batch: BatchMessage, intake: Intake) -> Outcome:
    if batch.batch_id in intake.done:
        return Done()
    if batch.batch_id in intake.waiting:
        log(Action.MESSAGE_WAITS, batch_id=batch.batch_id, sale_id=batch.sale_id, why=intake.waiting[batch.batch_id])
        return RetryAfter(delay_s=WAIT_S, why=intake.waiting[batch.batch_id])
    return _later(delivery, intake.failed.get(batch.batch_id, "unknown"))


def _later(delivery: Delivery, why: str) -> RetryAfter:
    delay_s = min(RETRY_MAX_S, WAIT_S * 2 ** min(delivery.attempt - 1, 5))
    warn(Action.MESSAGE_WAITS, message_id=delivery.message_id, attempt=delivery.attempt, why=why)
    return RetryAfter(delay_s=delay_s, why=why)
