"""The keeper's sweeps (design §3.8): what no message brought to its end. Each turn is bounded and may be repeated at
will."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.core.apart import Apart
from service.core.check_back import CheckBacks
from service.core.claims import BatchClaims, claims_of_stored, lacks_body, note_unreadable
from service.core.directory import SaleDirectory
from service.core.ending import EndingService
from service.core.order_intake import OrderIntake
from service.core.payments import PaymentService
from service.core.release import Releases, by_slot, slot_of
from service.core.reservations import ReservationReader
from service.domain.batch import decode_batch
from service.domain.check_back import Verdict
from service.domain.errors import InDoubt, NotFound, OutcomeUnknown, Permanent, UndecodableMessage
from service.domain.ids import SaleId, sale_of
from service.domain.order import Order
from service.domain.payment import PaymentOutcome
from service.domain.sale import Authority, Sale
from service.domain.stock import Batches, Lost, Slot, slots_of
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.messaging import DiscardedHalf, Transport
from service.ports.orders import OrderStore, StoredPayment
from service.ports.stock import Stock

ORDERS_A_TURN = 500
BATCHES_A_TURN = 64
OWED_A_TURN = 500
ORDERS_A_TRANSACTION = 512
PAYMENTS_A_TURN = 200
DISCARDED_A_TURN = 500
"""Bounds of one turn: each about a tenth of a second of the stores' time; a full turn is followed by the next at
once. 64 batches may be 8,192 orders: more than a slow database takes within one transaction's time, so that they go in
several."""


class ExpirySweep:
    """Unpaid orders whose time is over are cancelled, whatever became of their delay message (F21).

    Sale by sale, and where SQL refuses for good, in halves down to the one order that it refuses.
    """

    def __init__(self, orders: OrderStore, endings: EndingService, clock: Clock) -> None:
        self._orders = orders
        self._endings = endings
        self._clock = clock
        self._sales = Apart("expiry", clock)
        self._refused = Apart("expiry", clock)

    async def turn(self) -> int:
        resting = frozenset(key for key in self._sales.resting() if isinstance(key, str))
        refused = self._refused.resting()
        limit = ORDERS_A_TURN + len(refused)
        due = await self._orders.expired(self._clock.now_ms(), limit, besides=[SaleId(id_) for id_ in resting])
        by_sale: dict[SaleId, list[Order]] = {}
        for order in due:
            if order.id not in refused:
                by_sale.setdefault(order.sale_id, []).append(order)
        return await self._sales.each(by_sale.values(), lambda orders: orders[0].sale_id, self._of_sale)

    async def _of_sale(self, orders: list[Order]) -> int:
        try:
            return await self._endings.cancel_expired(orders)
        except Permanent:
            if len(orders) == 1:
                return await self._alone(orders)
        middle = len(orders) // 2
        return await self._of_sale(orders[:middle]) + await self._of_sale(orders[middle:])

    async def _alone(self, orders: list[Order]) -> int:
        """Once more, so that its failure is its own and not its sale's."""
        try:
            return await self._refused.each([orders], lambda one: one[0].id, self._endings.cancel_expired)
        except Permanent:
            return 0


class OwedSweep:
    """What is owed to Redis is given, and cleared (F20). A slot that fails does not fill the next turns."""

    def __init__(self, orders: OrderStore, releases: Releases, clock: Clock) -> None:
        self._orders = orders
        self._releases = releases
        self._slots = Apart("owed", clock)

    async def turn(self) -> int:
        resting = [key for key in self._slots.resting() if isinstance(key, Slot)]
        owed = await self._orders.owed(OWED_A_TURN, besides=resting)
        return await self._slots.each(by_slot(owed).values(), lambda items: slot_of(items[0]), self._releases.apply)


@dataclass(frozen=True, kw_only=True)
class _Swept:
    """Of one slot. `age_s`: of the oldest batch that was found without orders."""

    batches: int
    age_s: float


class UndeliveredSweep:
    """Decided batches without orders: the same transaction on the stored body. Past the queue deadline:
    `not_confirmed` (I5)."""

    def __init__(
        self,
        *,
        directory: SaleDirectory,
        stock: Stock,
        intake: OrderIntake,
        clock: Clock,
        after_s: float,
    ) -> None:
        self._directory = directory
        self._stock = stock
        self._intake = intake
        self._clock = clock
        self._after_ms = int(after_s * 1000)
        self._sales = Apart("undelivered", clock)

    async def turn(self) -> int:
        for sale in self._directory.all():
            if sale.authority is not Authority.REDIS:
                metrics.IN_DOUBT_AGE_SECONDS.labels(sale.id).set(0)
        under_redis = [sale for sale in self._directory.all() if sale.authority is Authority.REDIS]
        return await self._sales.each(under_redis, lambda sale: sale.id, self._sweep_sale)

    async def _sweep_sale(self, sale: Sale) -> int:
        found = [await self._sweep(sale, slot) for slot in slots_of(sale.id, sale.epoch, sale.segments)]
        metrics.IN_DOUBT_AGE_SECONDS.labels(sale.id).set(max(swept.age_s for swept in found))
        return sum(swept.batches for swept in found)

    async def _sweep(self, sale: Sale, slot: Slot) -> _Swept:
        before_ms = self._clock.now_ms() - self._after_ms
        reply = await self._stock.undelivered(slot, before_ms, BATCHES_A_TURN)
        if isinstance(reply, Lost):
            await self._directory.report_lost(sale, reply.found)
            return _Swept(batches=0, age_s=0.0)
        note_unreadable(sale, reply)
        if not reply.found:
            return _Swept(batches=0, age_s=0.0)
        if any(lacks_body(stored) for stored in reply.found.values()):
            # No message came for it, and its slot cannot say what was asked. In an older epoch its check-back will.
            await self._directory.report_lost(sale, await self._stock.server_ids(slot))
        claims = [claims_of_stored(sale, id_, stored) for id_, stored in reply.found.items()]
        ended = [len((await self._intake.decide_stored(part)).ended()) for part in _parts(claims)]
        return _Swept(batches=sum(ended), age_s=self._age_s(reply))

    def _age_s(self, reply: Batches) -> float:
        oldest_ms = min(stored.message.created_at_ms for stored in reply.found.values())
        return (self._clock.now_ms() - oldest_ms) / 1000


def _parts(batches: Sequence[BatchClaims]) -> Iterator[list[BatchClaims]]:
    """Of ORDERS_A_TRANSACTION each at most; whole batches, which are smaller than that."""
    part: list[BatchClaims] = []
    for batch in batches:
        if part and sum(len(it.claims) for it in (*part, batch)) > ORDERS_A_TRANSACTION:
            yield part
            part = []
        part.append(batch)
    yield part


class WaitingPaymentsSweep:
    """Payments that came before their order: applied when it is there, refunded when it cannot come any more (I6)."""

    def __init__(
        self,
        *,
        directory: SaleDirectory,
        orders: OrderStore,
        payments: PaymentService,
        reader: ReservationReader,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._orders = orders
        self._payments = payments
        self._reader = reader
        self._clock = clock
        self._apart = Apart("payments", clock)

    async def turn(self) -> int:
        """Those whose order is there first: nothing that waits for its deadline can stand before them."""
        limit = PAYMENTS_A_TURN + len(self._apart.resting())
        with_order = await self._orders.payments_with_order(limit)
        overdue = await self._orders.overdue_payments(self._clock.now_ms() - self._reader.margin_ms, limit)
        found = {stored.payment.id: stored for stored in (*with_order, *overdue)}
        return await self._apart.each(found.values(), lambda stored: stored.payment.id, self._settle)

    async def _settle(self, stored: StoredPayment) -> int:
        may = await self._may_yet_appear(stored)
        outcome = await self._payments.settle_waiting(stored, may_yet_appear=may)
        if outcome is PaymentOutcome.WAITING:
            # Past its deadline and still in doubt: it must not stand before those behind it.
            raise OutcomeUnknown(stored.payment.reservation_id)
        metrics.PAYMENTS.labels(outcome.value).inc()
        return 1

    async def _may_yet_appear(self, stored: StoredPayment) -> bool:
        """Until its queue deadline is past and no store knows the id."""
        id_ = stored.payment.reservation_id
        try:
            sale = await self._directory.current(sale_of(id_))
        except NotFound:
            return False
        patience_ms = sale.rules.queue_deadline_s * 1000 + self._reader.margin_ms
        if self._clock.now_ms() < stored.received_at_ms + patience_ms:
            return True
        try:
            await self._reader.get(id_)
        except NotFound:
            return False
        except InDoubt:
            return True
        return True


class DiscardedSweep:
    """Half messages that the broker asks about no more (F04): decided from their bodies, older epochs included."""

    def __init__(self, transport: Transport, checks: CheckBacks, intake: OrderIntake) -> None:
        self._transport = transport
        self._checks = checks
        self._intake = intake
        self._told_of: set[str] = set()
        """Logged once each; at most a turn's worth."""

    async def turn(self) -> int:
        found = await self._transport.discarded(DISCARDED_A_TURN)
        metrics.DISCARDED.set(len(found))
        self._told_of &= {half.message_id for half in found}
        ended = 0
        for half in found:
            if await self._ended(half):
                await self._transport.forget_discarded(half.message_id)
                metrics.DISCARDED_ENDED.inc()
                ended += 1
        return ended

    async def _ended(self, half: DiscardedHalf) -> bool:
        """COMMIT: the order transaction on its body. ROLLBACK: it is fenced, nothing follows. UNKNOWN: next time."""
        try:
            batch = decode_batch(half.body)
            match await self._checks.verdict(batch):
                case Verdict.COMMIT:
                    return batch.batch_id in (await self._intake.decide([batch])).ended()
                case Verdict.ROLLBACK:
                    return True
                case Verdict.UNKNOWN:
                    return False
        except (UndecodableMessage, NotFound, InDoubt) as error:
            if half.message_id not in self._told_of:
                self._told_of.add(half.message_id)
                warn(Action.DISCARDED_STAYS, message_id=half.message_id, batch_id=half.key, error=str(error))
            return False
