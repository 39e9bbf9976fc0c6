"""The order consumer's use case: batch messages in, orders out (design §3.4). Ack depends on COMMIT alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import msgspec

from service.core.after_commit import AfterCommit, Made
from service.core.claims import BatchClaims, ClaimsFinder
from service.core.directory import SaleDirectory
from service.core.fates import PATIENCE_MS, Ended, Failed, Fates, Waiting, patience_ms
from service.core.order_transaction import OrderTransaction
from service.domain.batch import BatchMessage, decode_batch
from service.domain.errors import NotFound, Permanent, StockUnavailable, Unavailable, UndecodableMessage, UnknownSchema
from service.domain.ids import BatchId, SaleId
from service.domain.order import Claim
from service.domain.reservation import Reason
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.messaging import Dead, Delivery, Done, Outcome, RetryAfter

WAIT_S = 1.0
"""A batch that waits for its sale (loading, lost) comes again this soon: a load takes seconds."""
RETRY_MAX_S = 30.0
"""Longest pause between tries of what has no end in sight: the delay doubles from WAIT_S up to here."""


class OrderIntake:
    def __init__(
        self,
        *,
        directory: SaleDirectory,
        claims: ClaimsFinder,
        transaction: OrderTransaction,
        after_commit: AfterCommit,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._finder = claims
        self._transaction = transaction
        self._after_commit = after_commit
        self._clock = clock

    async def process(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, Outcome]]:
        """An outcome for each delivery, once the transaction of all of them is committed."""
        settled: list[tuple[Delivery, Outcome]] = []
        decoded: list[tuple[Delivery, BatchMessage]] = []
        for delivery in deliveries:
            try:
                decoded.append((delivery, decode_batch(delivery.body)))
            except UnknownSchema as error:
                settled.append((delivery, _rarely(delivery, str(error))))
            except UndecodableMessage as error:
                settled.append((delivery, _dead(delivery, str(error))))
        batches = {batch.batch_id: batch for _, batch in decoded}
        try:
            fates = await self.decide(list(batches.values()))
        except Unavailable as error:
            return settled + [(delivery, _rarely(delivery, str(error))) for delivery, _ in decoded]
        return settled + [(delivery, self._outcome(delivery, batch, fates)) for delivery, batch in decoded]

    async def decide(self, batches: Sequence[BatchMessage]) -> Fates:
        """Make the orders of these batches. Unavailable: nothing is known of any of them, all come again."""
        found: dict[BatchId, BatchClaims | Waiting] = {}
        by_sale: dict[SaleId, list[BatchMessage]] = {}
        for batch in batches:
            by_sale.setdefault(batch.sale_id, []).append(batch)
        for sale_id, of_sale in by_sale.items():
            found.update(await self._find(sale_id, of_sale))
        fates = Fates({id_: claims for id_, claims in found.items() if isinstance(claims, Waiting)})
        await self._commit([claims for claims in found.values() if isinstance(claims, BatchClaims)], fates)
        return fates

    async def decide_stored(self, found: Sequence[BatchClaims]) -> Fates:
        """The keeper's sweep: the same transaction on claims from stored bodies; no message is sent again."""
        fates = Fates()
        await self._commit(found, fates)
        return fates

    def _outcome(self, delivery: Delivery, batch: BatchMessage, fates: Fates) -> Outcome:
        fate = fates[batch.batch_id]
        match fate:
            case Ended():
                return Done()
            case Waiting(why=why, soon=True):
                log(Action.MESSAGE_WAITS, batch_id=batch.batch_id, sale_id=batch.sale_id, why=why)
                return RetryAfter(delay_s=WAIT_S, why=why)
            case Waiting(why=why, patience_ms=patience) | Failed(why=why, patience_ms=patience):
                age_ms = self._clock.now_ms() - delivery.born_at_ms
                return _rarely(delivery, why) if patience is None or age_ms < patience else _dead(delivery, why)
            case unreachable:
                assert_never(unreachable)

    # --- finding ------------------------------------------------------------------------------------------------------

    async def _find(self, sale_id: SaleId, batches: Sequence[BatchMessage]) -> dict[BatchId, BatchClaims | Waiting]:
        """One sale's trouble with its Redis keeps only its own batches waiting."""
        try:
            sale = await self._directory.current(sale_id)
        except NotFound:
            # No deadline is known of it: a process that writes to another database than this one reads.
            stranger = Waiting(why="the sale is not known", soon=False, patience_ms=PATIENCE_MS)
            return {batch.batch_id: stranger for batch in batches}
        try:
            return await self._finder.find(sale, batches)
        except StockUnavailable as error:
            return {batch.batch_id: Waiting(why=str(error)) for batch in batches}

    # --- committing ---------------------------------------------------------------------------------------------------

    async def _commit(self, ready: Sequence[BatchClaims], fates: Fates) -> None:
        empty = [claims for claims in ready if not claims.claims]
        for claims in empty:
            if not claims.ordered:
                metrics.MESSAGES_WITHOUT_RECORD.inc()
                log(Action.MESSAGE_WITHOUT_RECORD, sale_id=claims.sale.id, batch_id=claims.batch_id)
        fates.add([claims.batch_id for claims in empty], Ended())
        made: list[Made] = []
        await self._commit_halving([claims for claims in ready if claims.claims], fates, made)
        await self._after_commit.tell(made)

    async def _commit_halving(self, batches: Sequence[BatchClaims], fates: Fates, made: list[Made]) -> None:
        """All in one transaction; a permanent error is bisected to the one candidate that has it."""
        if not batches:
            return
        try:
            await self._commit_at_once(batches, fates, made)
        except Permanent as error:
            halves = _halves(batches)
            if halves is None:
                await self._commit_refusal(batches[0], error, fates, made)
                return
            for half in halves:
                await self._commit_halving(half, fates, made)

    async def _commit_at_once(self, batches: Sequence[BatchClaims], fates: Fates, made: list[Made]) -> None:
        committed = await self._transaction.run(batches)
        for batch in batches:
            decision = committed.decisions.get(batch.sale.id)
            if decision is None:
                fates.add([batch.batch_id], Waiting(why="the authority changed: starts over"))
            else:
                fates.add([batch.batch_id], Ended())
                made.append((batch, decision))

    async def _commit_refusal(self, batch: BatchClaims, error: Permanent, fates: Fates, made: list[Made]) -> None:
        """SQL refuses this one candidate for good. Past its deadline it is rejected, in a row with as little in it as
        can be, where its buyer sees it (I5)."""
        (claim,) = batch.claims
        failed = Failed(why=f"{claim.candidate.reservation_id}: {error}", patience_ms=patience_ms(batch.sale))
        if batch.deadline_ms is None or self._clock.now_ms() < batch.deadline_ms:
            fates.add([batch.batch_id], failed)
            return
        try:
            await self._commit_at_once([replace(batch, claims=(_not_confirmed(claim),))], fates, made)
        except Permanent:
            fates.add([batch.batch_id], failed)


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


def _not_confirmed(claim: Claim) -> Claim:
    bare = msgspec.structs.replace(claim.candidate, coupon_code=None, metadata=None)
    return replace(claim, candidate=bare, rejected=Reason.NOT_CONFIRMED)


def _rarely(delivery: Delivery, why: str) -> RetryAfter:
    delay_s = min(RETRY_MAX_S, WAIT_S * 2 ** min(delivery.attempt - 1, 5))
    warn(Action.MESSAGE_WAITS, message_id=delivery.message_id, attempt=delivery.attempt, why=why)
    return RetryAfter(delay_s=delay_s, why=why)


def _dead(delivery: Delivery, why: str) -> Dead:
    warn(Action.MESSAGE_DEAD, message_id=delivery.message_id, error=why)
    return Dead(why=why)
