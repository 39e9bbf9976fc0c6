"""Reserve: the use case behind POST /v1/sales/{sale}/reservations (design §3.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from service.core.attempt import Attempt, AttemptTools
from service.core.batching import BatchLimits, BatchQueue, DecideBatch, ReserveAnswer, Ticket
from service.core.direct import DirectSelling
from service.core.directory import STALE_S
from service.core.readiness import Readiness
from service.domain.batch import Candidate, fingerprint
from service.domain.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable, Unavailable
from service.domain.ids import BuyerId, ReservationId, SaleId, home_segment, reservation_id, unkeyed_reservation_id
from service.domain.sale import Gate, Sale, SaleStatus, gate
from service.observability import metrics

__all__ = ["ReserveAnswer", "ReserveRequest", "ReserveService"]


class ReserveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A buyer's claim. `key` is the Idempotency-Key; without one each request is a new attempt."""

    sale_id: SaleId
    buyer_id: BuyerId
    quantity: int
    key: str | None = None
    coupon_code: str | None = None
    metadata: dict[str, str] | None = None


class ReserveService:
    def __init__(
        self,
        tools: AttemptTools,
        direct: DirectSelling,
        limits: BatchLimits,
        readiness: Readiness,
    ) -> None:
        self._tools = tools
        self._readiness = readiness
        self._direct = direct
        self._limits = limits
        self._queues: dict[tuple[SaleId, int], BatchQueue] = {}
        self._of_sale: dict[SaleId, list[BatchQueue]] = {}
        self._stopping = False

    async def reserve(self, request: ReserveRequest) -> ReserveAnswer:
        """The reservation, or why not: Conflict, Busy, IdempotencyKeyReused, OutcomeUnknown, Unavailable, NotFound.

        A caller that goes away ends only its own wait: what has begun is finished.
        """
        if not self._is_begun(request.sale_id):
            await self._look_again()
        sale = self._admit(request)
        candidate = _candidate(request)
        queue = self._queue(sale, candidate.reservation_id)
        return await queue.join(candidate, keyed=request.key is not None)

    async def drain(self) -> int:
        """Stop intake, finish what is in flight; the number of batches that were. The caller sets the deadline."""
        self._stopping = True
        in_flight = sum(queue.in_flight for queue in self._queues.values())
        for queue in list(self._queues.values()):
            await queue.drain()
        return in_flight

    def abandon(self) -> None:
        """After a drain that took too long: nobody's last word is a broken connection."""
        for queue in self._queues.values():
            queue.abandon()

    def _is_begun(self, sale_id: SaleId) -> bool:
        """By our view, which another process's act may have overtaken: a sale is made and opened once, and whoever was
        told so may ask here next."""
        try:
            return self._tools.directory.selling(sale_id).status not in {SaleStatus.DRAFT, SaleStatus.READY}
        except NotFound:
            return False

    async def _look_again(self) -> None:
        """Unavailable: nothing was attempted."""
        try:
            async with asyncio.timeout(STALE_S):
                await self._tools.directory.look_again()
        except (TimeoutError, StoreUnavailable):
            raise Unavailable("sale rows", "they cannot be read") from None

    def _admit(self, request: ReserveRequest) -> Sale:
        if self._stopping:
            raise Unavailable("this process", "it is stopping")
        sale = self._tools.directory.selling(request.sale_id)
        if request.quantity > sale.rules.limit_per_buyer:
            raise InvalidRequest("quantity", f"more than the limit of {sale.rules.limit_per_buyer} a buyer")
        verdict = gate(sale, self._tools.clock.now_ms())
        if verdict in {Gate.NOT_OPEN, Gate.CLOSED}:
            raise Conflict(verdict.value, sale_id=sale.id, final=False)
        if verdict is Gate.SHUT:
            raise Unavailable("stock", "the sale's stock is being rebuilt")
        self._readiness.require(verdict)
        return sale

    def _queue(self, sale: Sale, id_: ReservationId) -> BatchQueue:
        segment = home_segment(id_, sale.segments)
        queue = self._queues.get((sale.id, segment))
        if queue is None:
            queue = BatchQueue(self._attempt(sale.id, segment), self._limits, self._tools.clock)
            self._queues[sale.id, segment] = queue
            of_sale = self._of_sale.setdefault(sale.id, [])
            of_sale.append(queue)
            metrics.QUEUE_LENGTH.labels(sale.id).set_function(partial(_waiting, of_sale))
        return queue

    def _attempt(self, sale_id: SaleId, segment: int) -> DecideBatch:
        async def attempt(tickets: list[Ticket], answered: Callable[[], None]) -> None:
            try:
                sale = self._tools.directory.selling(sale_id)
                road = gate(sale, self._tools.clock.now_ms())
                self._readiness.require(road)
            except (Unavailable, NotFound) as error:
                # NotFound too: of more sales than a process reads, it may have dropped out of the view meanwhile.
                for ticket in tickets:
                    ticket.refuse(error)
                return
            match road:
                case Gate.REDIS:
                    await Attempt(self._tools, sale, segment, tickets, answered).run()
                case Gate.SQL:
                    await self._direct.sell(sale, segment, tickets)
                case shut:
                    _refuse_shut(tickets, sale, shut)

        return attempt


def _waiting(queues: Sequence[BatchQueue]) -> int:
    return sum(map(len, queues))


def _refuse_shut(tickets: list[Ticket], sale: Sale, shut: Gate) -> None:
    for ticket in tickets:
        if shut is Gate.SHUT:
            ticket.refuse(Unavailable("stock", "the sale's stock is being rebuilt"))
        else:
            ticket.refuse(Conflict(shut.value, sale_id=sale.id, final=False))


def _candidate(request: ReserveRequest) -> Candidate:
    if request.key is None:
        id_ = unkeyed_reservation_id(request.sale_id, request.buyer_id)
    else:
        id_ = reservation_id(request.sale_id, request.buyer_id, request.key)
    return Candidate(
        reservation_id=id_,
        buyer_id=request.buyer_id,
        quantity=request.quantity,
        fingerprint=fingerprint(request.quantity, request.coupon_code, request.metadata),
        coupon_code=request.coupon_code,
        metadata=request.metadata,
    )
