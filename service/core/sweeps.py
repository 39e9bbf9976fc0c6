"""The keeper's sweeps (design §3.8): what no message brought to its end. Each turn is bounded and may be repeated at
will."""

from __future__ import annotations

from service.core.check_back import CheckBacks
from service.core.claims import claims_of_stored
from service.core.directory import SaleDirectory
from service.core.ending import EndingService
from service.core.order_intake import OrderIntake
from service.core.payments import PaymentService
from service.core.release import Releases
from service.core.reservations import CLOCK_MARGIN_MS, ReservationReader
from service.domain.batch import decode_batch
from service.domain.check_back import Verdict
from service.domain.errors import EpochChanged, InDoubt, NotFound, UndecodableMessage
from service.domain.ids import sale_of
from service.domain.payment import PaymentOutcome
from service.domain.sale import Authority, Sale
from service.domain.stock import Batches, Lost, RecordState, Slot, StoredBatch
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
PAYMENTS_A_TURN = 200
DISCARDED_A_TURN = 500
"""Bounds of one turn: each about a tenth of a second of the stores' time; a full turn is followed by the next at
once."""


class ExpirySweep:
    """Unpaid orders whose time is over are cancelled, whatever became of their delay message (F21)."""

    def __init__(self, orders: OrderStore, endings: EndingService, clock: Clock) -> None:
        self._orders = orders
        self._endings = endings
        self._clock = clock

    async def turn(self) -> int:
        due = await self._orders.expired(self._clock.now_ms(), ORDERS_A_TURN)
        return await self._endings.cancel_expired(due) if due else 0


class OwedSweep:
    """What is owed to Redis is given, and cleared (F20)."""

    def __init__(self, orders: OrderStore, releases: Releases) -> None:
        self._orders = orders
        self._releases = releases

    async def turn(self) -> int:
        owed = await self._orders.owed(OWED_A_TURN)
        return await self._releases.apply(owed) if owed else 0


class UndeliveredSweep:
    """Decided batches without orders: the same transaction on the stored body. Past the queue deadline:
    `not_confirmed` (I5)."""

    def __init__(
        self,
        *,
        directory: SaleDirectory,
        stock: Stock,
        intake: OrderIntake,
        endings: EndingService,
        clock: Clock,
        after_s: float,
    ) -> None:
        self._directory = directory
        self._stock = stock
        self._intake = intake
        self._endings = endings
        self._clock = clock
        self._after_ms = int(after_s * 1000)

    async def turn(self) -> int:
        swept = 0
        for sale in self._directory.all():
            metrics.IN_DOUBT_AGE_SECONDS.labels(sale.id).set(0)
            if sale.authority is Authority.REDIS:
                for segment in range(sale.segments):
                    swept += await self._sweep(sale, Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch))
        return swept

    async def _sweep(self, sale: Sale, slot: Slot) -> int:
        before_ms = self._clock.now_ms() - self._after_ms
        reply = await self._stock.undelivered(slot, before_ms, BATCHES_A_TURN)
        if isinstance(reply, Lost):
            await self._directory.report_lost(sale, reply.found)
            return 0
        self._note_age(sale, reply)
        if not reply.found:
            return 0
        claims = [claims_of_stored(sale, id_, stored) for id_, stored in reply.found.items()]
        intake = await self._intake.decide_stored(claims)
        await self._give_up_overdue(sale, [reply.found[id_] for id_ in intake.failed])
        return len(intake.done)

    async def _give_up_overdue(self, sale: Sale, failed: list[StoredBatch]) -> None:
        """What SQL refuses for good is retried until the queue deadline, then rejected where its buyer can see it."""
        deadline_ms = self._clock.now_ms() - sale.rules.queue_deadline_s * 1000
        for stored in failed:
            if stored.message.created_at_ms <= deadline_ms:
                queued = [record for record in stored.winners.values() if record.state is RecordState.QUEUED]
                try:
                    await self._endings.reject_unconfirmed(sale, queued)
                except EpochChanged:
                    return

    def _note_age(self, sale: Sale, reply: Batches) -> None:
        oldest_ms = min((stored.message.created_at_ms for stored in reply.found.values()), default=None)
        age_s = 0.0 if oldest_ms is None else (self._clock.now_ms() - oldest_ms) / 1000
        metrics.IN_DOUBT_AGE_SECONDS.labels(sale.id).set(age_s)


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

    async def turn(self) -> int:
        settled = 0
        for stored in await self._orders.waiting_payments(PAYMENTS_A_TURN):
            may = await self._may_yet_appear(stored)
            outcome = await self._payments.settle_waiting(stored, may_yet_appear=may)
            metrics.PAYMENTS.labels(outcome.value).inc(outcome is not PaymentOutcome.WAITING)
            settled += outcome is not PaymentOutcome.WAITING
        return settled

    async def _may_yet_appear(self, stored: StoredPayment) -> bool:
        """Until its queue deadline is past and no store knows the id."""
        id_ = stored.payment.reservation_id
        try:
            sale = await self._directory.current(sale_of(id_))
        except NotFound:
            return False
        patience_ms = sale.rules.queue_deadline_s * 1000 + CLOCK_MARGIN_MS
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
                    return batch.batch_id in (await self._intake.decide([batch])).done
                case Verdict.ROLLBACK:
                    return True
                case Verdict.UNKNOWN:
                    return False
        except (UndecodableMessage, NotFound, InDoubt) as error:
            if half.message_id not in self._told_of:
                self._told_of.add(half.message_id)
                warn(Action.DISCARDED_STAYS, message_id=half.message_id, batch_id=half.key, error=str(error))
            return False
