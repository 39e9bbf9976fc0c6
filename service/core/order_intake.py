"""The order consumer's use case: batch messages in, orders out (design §3.4). Ack depends on COMMIT alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import msgspec

from service.core.after_commit import AfterCommit, Made
from service.core.claims import BatchClaims, ClaimsFinder
from service.core.directory import SaleDirectory
from service.core.fates import PATIENCE_MS, Ended, Failed, Fates, Waiting, patience_ms
from service.core.order_transaction import OrderTransaction
from service.core.pace import PART_S, Pace
from service.domain.batch import BatchMessage, decode_batch
from service.domain.errors import (
    DropgateError,
    NotFound,
    Permanent,
    StockUnavailable,
    StoreTimedOut,
    Unavailable,
    UndecodableMessage,
    UnknownSchema,
)
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

COMMIT_S = 16.0
"""For all transactions of one receive: the first may take all that SQL gives one (10 s), then there is time for smaller
ones. What follows it (AFTER_COMMIT_S) and what comes before have their time too until INVISIBLE_S (30 s)."""
LOOK_S = 2.0
"""For a look whether the database is there at all: a read of one row, which waits for no lock."""
SALES_AT_ONCE = 4
"""Sales that are taken apart, side by side: each has a connection of its own, of a pool that others need."""


@dataclass(kw_only=True)
class _Receive:
    """What becomes of the batches of one receive. `until_s`, of the event loop's time: none of it is begun later."""

    fates: Fates
    until_s: float
    made: list[Made] = field(default_factory=list)
    late: list[DropgateError] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until_s

    def put_off(self, batches: Sequence[BatchClaims], error: DropgateError) -> None:
        self.late.append(error)
        self.fates.add([batch.batch_id for batch in batches], Waiting(why=str(error), soon=False))


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
        self._pace = Pace()

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
        receive = _Receive(fates=fates, until_s=asyncio.get_running_loop().time() + COMMIT_S)
        await self._commit_all([claims for claims in ready if claims.claims], receive)
        await self._after_commit.tell(receive.made)
        if receive.late and not receive.made:
            raise receive.late[0]

    async def _commit_all(self, batches: Sequence[BatchClaims], receive: _Receive) -> None:
        """All in one transaction, but for sales that were late before. If the time was over, sale by sale: one that is
        stuck, or has too much, costs the others one time-out."""
        together = [batch for batch in batches if not self._pace.is_slow(batch.sale.id)]
        apart = [batch for batch in batches if self._pace.is_slow(batch.sale.id)]
        try:
            await self._commit_halving(together, receive, COMMIT_S)
        except StoreTimedOut as error:
            if not await self._answers(together[0].sale.id):
                receive.put_off([*together, *apart], error)
                return
            by_sale = _by_sale(together)
            if len(by_sale) == 1:
                self._pace.late(together[0].sale.id, _count(together))
            apart += together
        await self._commit_apart(_by_sale(apart), receive)

    async def _answers(self, sale_id: SaleId) -> bool:
        """What tells a database that is stuck at a row, or has too much, from one that is away without a word."""
        try:
            async with asyncio.timeout(LOOK_S):
                await self._directory.current(sale_id)
        except (Unavailable, TimeoutError):
            return False
        except NotFound:
            return True
        return True

    async def _commit_apart(self, by_sale: dict[SaleId, list[BatchClaims]], receive: _Receive) -> None:
        at_once = asyncio.Semaphore(SALES_AT_ONCE)

        async def one(sale_id: SaleId, of_sale: list[BatchClaims]) -> None:
            async with at_once:
                await self._commit_in_parts(sale_id, of_sale, receive)

        async with asyncio.TaskGroup() as group:
            for sale_id, of_sale in by_sale.items():
                group.create_task(one(sale_id, of_sale))

    async def _commit_in_parts(self, sale_id: SaleId, left: list[BatchClaims], receive: _Receive) -> None:
        """Part by part, as large as it goes within PART_S, until the receive's time is over; the rest comes again."""
        late: DropgateError = StoreTimedOut("sql", "no time was left in this receive")
        loop = asyncio.get_running_loop()
        while left and not receive.is_over:
            part, rest = _cut(left, self._pace.most(sale_id))
            began_s = loop.time()
            try:
                await self._commit_halving(part, receive, PART_S)
            except StoreTimedOut as error:
                late = error
                if not self._pace.late(sale_id, _count(part)):
                    break
                continue
            except DropgateError as error:
                late = error
                break
            self._pace.in_time(sale_id, loop.time() - began_s)
            left = rest
        if left:
            receive.put_off(left, late)

    async def _commit_halving(self, batches: Sequence[BatchClaims], receive: _Receive, within_s: float) -> None:
        """All in one transaction; a permanent error is bisected to the one candidate that has it."""
        if not batches:
            return
        try:
            await self._commit_at_once(batches, receive, within_s)
        except Permanent as error:
            halves = _halves(batches)
            if halves is None:
                await self._commit_refusal(batches[0], error, receive, within_s)
                return
            for half in halves:
                await self._commit_halving(half, receive, within_s)

    async def _commit_at_once(self, batches: Sequence[BatchClaims], receive: _Receive, within_s: float) -> None:
        ends_s = min(receive.until_s, asyncio.get_running_loop().time() + within_s)
        try:
            async with asyncio.timeout_at(ends_s):
                committed = await self._transaction.run(batches)
        except TimeoutError as error:
            raise StoreTimedOut("sql", "no end within the time of its receive") from error
        for batch in batches:
            decision = committed.decisions.get(batch.sale.id)
            if decision is None:
                receive.fates.add([batch.batch_id], Waiting(why="the authority changed: starts over"))
            else:
                receive.fates.add([batch.batch_id], Ended())
                receive.made.append((batch, decision))

    async def _commit_refusal(self, batch: BatchClaims, error: Permanent, receive: _Receive, within_s: float) -> None:
        """SQL refuses this one candidate for good. Past its deadline it is rejected, in a row with as little in it as
        can be, where its buyer sees it (I5)."""
        (claim,) = batch.claims
        failed = Failed(why=f"{claim.candidate.reservation_id}: {error}", patience_ms=patience_ms(batch.sale))
        if batch.deadline_ms is None or self._clock.now_ms() < batch.deadline_ms:
            receive.fates.add([batch.batch_id], failed)
            return
        try:
            await self._commit_at_once([replace(batch, claims=(_not_confirmed(claim),))], receive, within_s)
        except Permanent:
            receive.fates.add([batch.batch_id], failed)


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


def _cut(batches: Sequence[BatchClaims], most: int) -> tuple[list[BatchClaims], list[BatchClaims]]:
    """The first `most` claims, and the rest. A batch may be on both sides: the gravest fate of its parts counts."""
    part: list[BatchClaims] = []
    for index, batch in enumerate(batches):
        if len(batch.claims) > most:
            first = [replace(batch, claims=batch.claims[:most])] if most else []
            return part + first, [replace(batch, claims=batch.claims[most:]), *batches[index + 1 :]]
        part.append(batch)
        most -= len(batch.claims)
    return part, []


def _by_sale(batches: Sequence[BatchClaims]) -> dict[SaleId, list[BatchClaims]]:
    by_sale: dict[SaleId, list[BatchClaims]] = {}
    for batch in batches:
        by_sale.setdefault(batch.sale.id, []).append(batch)
    return by_sale


def _count(batches: Sequence[BatchClaims]) -> int:
    return sum(len(batch.claims) for batch in batches)


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
