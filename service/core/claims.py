"""From batch messages to claims: what each batch may bring before the order transaction (design §3.3, §3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from service.core.directory import SaleDirectory
from service.core.fates import Waiting, patience_ms
from service.domain.batch import BatchMessage, Candidate
from service.domain.ids import BatchId, ReservationId, home_segment
from service.domain.order import Claim
from service.domain.reservation import Reason
from service.domain.road import Meeting, meeting
from service.domain.sale import Sale
from service.domain.stock import (
    Batches,
    Known,
    LateRules,
    Lost,
    No,
    RecordState,
    Refusal,
    ReserveAnswer,
    Reserved,
    Slot,
    StoredBatch,
    Won,
)
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.orders import OrderStore
from service.ports.stock import Stock


@dataclass(frozen=True, kw_only=True)
class BatchClaims:
    """The claims of one batch under the authority and epoch that `sale` shows: void if the locked row shows others."""

    sale: Sale
    batch_id: BatchId
    claims: tuple[Claim, ...]
    older: bool
    deadline_ms: int | None = None
    """From when on a candidate that SQL refuses for good is rejected with `not_confirmed`."""
    ordered: bool = False
    """Some winner of it has its order: this is a second delivery, not a message without a record."""


REASON_OF: dict[No, Reason] = {
    No.LIMIT_REACHED: Reason.LIMIT_REACHED,
    No.SEGMENT_EMPTY: Reason.SOLD_OUT,
    No.PAST_DEADLINE: Reason.NOT_CONFIRMED,
}


class ClaimsFinder:
    def __init__(self, directory: SaleDirectory, stock: Stock, orders: OrderStore) -> None:
        self._directory = directory
        self._stock = stock
        self._orders = orders

    async def find(self, sale: Sale, batches: Sequence[BatchMessage]) -> dict[BatchId, BatchClaims | Waiting]:
        """For each batch of one sale: its claims, or why it waits. An empty claim list: it holds nothing, no order
        follows."""
        found: dict[BatchId, BatchClaims | Waiting] = {}
        own = [batch for batch in batches if meeting(sale, batch.epoch) is Meeting.OWN_RECORDS]
        found.update(await self._own(sale, own))
        for batch in batches:
            match meeting(sale, batch.epoch):
                case Meeting.OWN_RECORDS:
                    continue
                case Meeting.WAITS:
                    found[batch.batch_id] = _waiting(sale, batch)
                case Meeting.OLDER_BY_SQL:
                    found[batch.batch_id] = await self._older_by_sql(sale, batch)
                case Meeting.OLDER_BY_REDIS:
                    found[batch.batch_id] = await self._older_by_redis(sale, batch)
                case unreachable:
                    assert_never(unreachable)
        return found

    # --- the batch's own epoch ----------------------------------------------------------------------------------------

    async def _own(self, sale: Sale, batches: Sequence[BatchMessage]) -> dict[BatchId, BatchClaims | Waiting]:
        by_segment: dict[int, dict[BatchId, BatchMessage]] = {}
        found: dict[BatchId, BatchClaims | Waiting] = {}
        for batch in batches:
            if batch.segment < sale.segments:
                by_segment.setdefault(batch.segment, {})[batch.batch_id] = batch
            else:
                # The epoch has no such slot: nothing was ever deducted there, and nothing is lost either.
                found[batch.batch_id] = claims_of_stored(sale, batch.batch_id, None)
        for segment, delivered in by_segment.items():
            slot = Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch)
            reply = await self._stock.batches(slot, list(delivered))
            found.update(await self._of_records(sale, delivered, reply))
        return found

    async def _of_records(
        self, sale: Sale, delivered: Mapping[BatchId, BatchMessage], reply: Batches | Lost
    ) -> dict[BatchId, BatchClaims | Waiting]:
        if isinstance(reply, Lost):
            await self._directory.report_lost(sale, reply.found)
            return dict.fromkeys(delivered, Waiting(why="Redis is lost"))
        note_unreadable(sale, reply)
        unread = Waiting(why="stored by a newer release", soon=False)
        return {
            id_: unread if id_ in reply.unreadable else claims_of_stored(sale, id_, reply.found.get(id_), batch)
            for id_, batch in delivered.items()
        }

    # --- an older epoch's batch ---------------------------------------------------------------------------------------

    async def _older_by_sql(self, sale: Sale, batch: BatchMessage) -> BatchClaims | Waiting:
        deadline_ms = await self._deadline_ms(sale, batch)
        if deadline_ms is None:
            return _without_an_end(sale, batch)
        claims = [
            _claim(sale, batch, candidate, holds_redis=False, deadline_ms=deadline_ms) for candidate in batch.candidates
        ]
        return _older(sale, batch, claims, deadline_ms)

    async def _older_by_redis(self, sale: Sale, batch: BatchMessage) -> BatchClaims | Waiting:
        """Reserve again what has no row and is no decided loser; the script looks at the deadline itself."""
        deadline_ms = await self._deadline_ms(sale, batch)
        if deadline_ms is None:
            return _without_an_end(sale, batch)
        remaining = await self._undecided(batch)
        if not remaining:
            return _older(sale, batch, (), deadline_ms)
        late = LateRules(deadline_ms=deadline_ms)
        claims: list[Claim] = []
        for part in _by_home(sale, batch, remaining):
            slot = Slot(sale_id=sale.id, segment=part.segment, epoch=sale.epoch)
            reply = await self._stock.reserve(slot, part, sale.rules.limit_per_buyer, late)
            if isinstance(reply, Lost):
                await self._directory.report_lost(sale, reply.found)
                return Waiting(why="Redis is lost")
            # No check-back of an older epoch asks Redis, so nobody fences it here; if it happened, it holds nothing.
            if isinstance(reply, Reserved):
                claims += _claims_of_answers(sale, part, reply.answers)
        return _older(sale, batch, claims, deadline_ms)

    async def _undecided(self, batch: BatchMessage) -> list[Candidate]:
        ids = [candidate.reservation_id for candidate in batch.candidates]
        rows = await self._orders.orders(ids)
        _, losers = await self._orders.batch_rows(batch.batch_id)
        return [
            candidate
            for candidate in batch.candidates
            if candidate.reservation_id not in rows and candidate.reservation_id not in (losers or frozenset())
        ]

    async def _deadline_ms(self, sale: Sale, batch: BatchMessage) -> int | None:
        """Of the candidate's own epoch, as it was when that ended (design §3.3): GET has said 404 by it."""
        return await self._orders.epoch_deadline_ms(sale.id, batch.epoch)


def _waiting(sale: Sale, batch: BatchMessage) -> Waiting:
    """While the sale is loaded: soon. From an epoch that the row has not reached, as after a restore: it may never."""
    why = f"epoch {batch.epoch} meets authority {sale.authority}, epoch {sale.epoch}"
    if batch.epoch > sale.epoch:
        return Waiting(why=why, soon=False, patience_ms=patience_ms(sale))
    return Waiting(why=why)


def _without_an_end(sale: Sale, batch: BatchMessage) -> Waiting:
    why = f"the end of epoch {batch.epoch} is not known"
    return Waiting(why=why, soon=False, patience_ms=patience_ms(sale))


def _older(sale: Sale, batch: BatchMessage, claims: Sequence[Claim], deadline_ms: int) -> BatchClaims:
    return BatchClaims(sale=sale, batch_id=batch.batch_id, claims=tuple(claims), older=True, deadline_ms=deadline_ms)


def note_unreadable(sale: Sale, reply: Batches) -> None:
    """A newer release, rolling out or back, wrote them, and will bring them to their end."""
    if reply.unreadable:
        metrics.UNREADABLE_BATCHES.inc(len(reply.unreadable))
        warn(Action.BATCH_UNREADABLE, sale_id=sale.id, batches=len(reply.unreadable), first=min(reply.unreadable))


def lacks_body(stored: StoredBatch) -> bool:
    """A winner is queued whom no stored body names: the slot was damaged."""
    named = {candidate.reservation_id for candidate in stored.message.candidates}
    return any(record.state is RecordState.QUEUED and id_ not in named for id_, record in stored.winners.items())


def claims_of_stored(
    sale: Sale, batch_id: BatchId, stored: StoredBatch | None, delivered: BatchMessage | None = None
) -> BatchClaims:
    """The winners of a decided batch, from its stored body and its live records. None, fenced or all ended: no
    claims. Where the slot lost the body, the delivered one stands in."""
    claims = []
    if stored is not None:
        body = delivered if delivered is not None and lacks_body(stored) else stored.message
        for candidate in body.candidates:
            record = stored.winners.get(candidate.reservation_id)
            if record is not None and record.batch_id == batch_id and record.state is not RecordState.ENDED:
                claims.append(_claim(sale, body, candidate, holds_redis=True, deadline_ms=None))
    records = () if stored is None else stored.winners.values()
    return BatchClaims(
        sale=sale,
        batch_id=batch_id,
        claims=tuple(claims),
        older=False,
        deadline_ms=None if stored is None else stored.message.created_at_ms + sale.rules.queue_deadline_s * 1000,
        ordered=any(record.state is RecordState.ORDERED for record in records),
    )


def _by_home(sale: Sale, batch: BatchMessage, candidates: Sequence[Candidate]) -> list[BatchMessage]:
    """The batch in parts, one for each home segment of this epoch: the count may have changed since its own."""
    homes: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        homes.setdefault(home_segment(candidate.reservation_id, sale.segments), []).append(candidate)
    return [
        msgspec.structs.replace(batch, segment=segment, candidates=tuple(of_home)) for segment, of_home in homes.items()
    ]


def _claims_of_answers(sale: Sale, batch: BatchMessage, answers: Mapping[ReservationId, ReserveAnswer]) -> list[Claim]:
    claims = []
    for candidate in batch.candidates:
        answer = answers.get(candidate.reservation_id)
        match answer:
            case Won():
                claims.append(_claim(sale, batch, candidate, holds_redis=True, deadline_ms=None))
            case Refusal(no=no):
                reason = REASON_OF[no]
                claims.append(_claim(sale, batch, candidate, holds_redis=False, deadline_ms=None, rejected=reason))
            case Known() | None:
                # Another batch decided this id, or it ended: that decision stands.
                continue
            case unreachable:
                assert_never(unreachable)
    return claims


def _claim(
    sale: Sale,
    batch: BatchMessage,
    candidate: Candidate,
    *,
    holds_redis: bool,
    deadline_ms: int | None,
    rejected: Reason | None = None,
) -> Claim:
    return Claim(
        candidate=candidate,
        batch_id=batch.batch_id,
        segment=home_segment(candidate.reservation_id, sale.segments),
        created_at_ms=batch.created_at_ms,
        deadline_ms=deadline_ms,
        holds_redis=holds_redis,
        rejected=rejected,
    )
