"""Ending a reservation (design §3.5): SQL first, always; then end.lua; then clear what was owed."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from service.core.directory import SaleDirectory
from service.core.payments import refund_applied_payment
from service.core.release import Releases
from service.core.reservations import ReservationReader
from service.domain.errors import Busy, Conflict, EpochChanged, NotFound, OutcomeUnknown
from service.domain.event import event_of_order
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId, home_segment, parse_reservation_id, sale_of
from service.domain.order import EndRefused, Order, Owed, cancel
from service.domain.reservation import Reason, Reservation, Status
from service.domain.sale import Authority, Sale
from service.domain.stock import Effect, Record, RecordState
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleTransaction, StockMovement, Work

STARTS_OVER_MAX = 4
"""How often an ending starts over because the authority changed under it: each change takes seconds, so more is a
storm."""

START_OVER_S = 0.05
"""Pauses between them have full jitter and double from here on: who met at a change does not meet again."""

WAITING_MAX = 64
"""Callers of one process at one sale's row. Each takes milliseconds; where the row is stuck, more of them would only
wait longer for their 503."""
BUSY_RETRY_S = 1

EXTENSION_S = 300
"""A started payment extends its window once, by this much at most (design §3.6)."""

_random = secrets.SystemRandom()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The row as the transaction leaves it, and what is owed to Redis for it. `now`: it is this one that ended it."""

    order: Order
    owed: tuple[Owed, ...] = ()
    now: bool = False


class Callers:
    """How many are at each sale: one too many hears Busy, and nothing was written for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at: Counter[SaleId] = Counter()

    @contextmanager
    def at(self, sale_id: SaleId) -> Iterator[None]:
        if self._at[sale_id] >= self._most:
            raise Busy(BUSY_RETRY_S)
        self._at[sale_id] += 1
        try:
            yield
        finally:
            self._at[sale_id] -= 1
            if self._at[sale_id] == 0:
                del self._at[sale_id]


class EndingService:
    def __init__(
        self,
        directory: SaleDirectory,
        reader: ReservationReader,
        orders: OrderStore,
        releases: Releases,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._reader = reader
        self._orders = orders
        self._releases = releases
        self._clock = clock
        self._callers = Callers(WAITING_MAX)

    async def cancel(self, id_: ReservationId, reason: Reason) -> Reservation:
        """Cancelled now, or cancelled before. Conflict `already_paid` or `already_final`; NotFound; OutcomeUnknown;
        Busy."""
        with self._at_sale_of(id_):
            for attempt in range(STARTS_OVER_MAX):
                if attempt > 0:
                    await self._clock.sleep(_random.uniform(0, START_OVER_S * 2**attempt))
                ended = await self._try_to_cancel(id_, reason)
                if ended is not None:
                    return await self._ended(ended)
        raise OutcomeUnknown(id_)

    async def cancel_expired(self, orders: Sequence[Order]) -> int:
        """Cancel those of these orders that are due, in one transaction a sale; the number cancelled."""
        by_sale: dict[SaleId, list[ReservationId]] = {}
        for order in orders:
            by_sale.setdefault(order.sale_id, []).append(order.id)
        return sum([await self._cancel_due(sale_id, ids) for sale_id, ids in by_sale.items()])

    async def refund(self, id_: ReservationId, *, restock: bool, why: str, actor: str) -> Reservation:
        """A paid order is refunded; `restock` decides whether its units return. Conflict where it is not paid; Busy."""
        with self._at_sale_of(id_):
            await self._need_row(id_)
            work = self._refund_row(id_, restock=restock, why=why, actor=actor)
            return await self._ended(await self._orders.transact([sale_of(id_)], work))

    def _refund_row(self, id_: ReservationId, *, restock: bool, why: str, actor: str) -> Work[Ended]:
        async def work(transaction: SaleTransaction) -> Ended:
            sale, order = await _locked(transaction, id_)
            if order.status is Status.REFUNDED:
                return Ended(order=order)
            if order.status is not Status.PAID:
                raise Conflict("already_final" if order.is_final else "not_payable", reservation_id=id_)
            now_ms = self._clock.now_ms()
            refunded = replace(order, status=Status.REFUNDED, reason=Reason.PAYMENT_REFUNDED, restocked=restock)
            if not await transaction.replace_order(refunded, expected=Status.PAID):
                raise OutcomeUnknown(id_)
            await transaction.emit([event_of_order(refunded, now_ms)])
            await refund_applied_payment(transaction, refunded, now_ms)
            await transaction.audit(actor, "refund", id_, why=why, detail={"restock": restock}, at_ms=now_ms)
            owed = await give_back(transaction, sale, [refunded], "refund", now_ms) if restock else ()
            return Ended(order=refunded, owed=owed, now=True)

        return work

    async def start_payment(self, id_: ReservationId) -> Reservation:
        """The buyer is at the payment page: a window that would end under a slow payment grows, once. Busy."""
        with self._at_sale_of(id_):
            await self._need_row(id_)
            return (await self._orders.transact([sale_of(id_)], self._extend_row(id_))).as_reservation()

    def _extend_row(self, id_: ReservationId) -> Work[Order]:
        async def work(transaction: SaleTransaction) -> Order:
            _, order = await _locked(transaction, id_)
            if order.status is not Status.AWAITING_PAYMENT or order.expires_at_ms is None:
                raise Conflict("not_payable", reservation_id=id_)
            until_ms = self._clock.now_ms() + EXTENSION_S * 1000
            if order.window_extended or until_ms <= order.expires_at_ms:
                return order
            extended = replace(order, expires_at_ms=until_ms, window_extended=True)
            if not await transaction.replace_order(extended, expected=Status.AWAITING_PAYMENT):
                raise Conflict("not_payable", reservation_id=id_)
            return extended

        return work

    @contextmanager
    def _at_sale_of(self, id_: ReservationId) -> Iterator[None]:
        parsed = parse_reservation_id(id_)
        if parsed is None:
            raise NotFound("reservation", id_)
        with self._callers.at(parsed[0]):
            yield

    async def _ended(self, ended: Ended) -> Reservation:
        """After the COMMIT: count it, and give Redis what it is owed, as far as that goes now."""
        order = ended.order
        if ended.now and order.reason is not None:
            log(Action.ORDER_ENDED, sale_id=order.sale_id, reason=order.reason, orders=1)
            metrics.ENDED.labels(order.sale_id, order.reason.value).inc()
        if ended.owed:
            await self._releases.try_apply(ended.owed)
        return order.as_reservation()

    async def _need_row(self, id_: ReservationId) -> None:
        """What is queued holds its units but cannot be paid yet; what no store shows is said as GET says it."""
        if (await self._reader.get(id_)).status is Status.QUEUED:
            raise Conflict("not_payable", reservation_id=id_)

    # --- one cancel ---------------------------------------------------------------------------------------------------

    async def _try_to_cancel(self, id_: ReservationId, reason: Reason) -> Ended | None:
        """None: the authority, or what the stores show of the id, changed under it. It starts over."""
        sale = await self._directory.current(sale_of(id_))
        if await self._orders.order(id_) is not None:
            return await self._orders.transact([sale.id], self._cancel_row(id_, reason))
        record = await self._reader.record(sale, id_)
        if record is None or record.state is not RecordState.QUEUED:
            # Raises as GET does. Where it finds the id after all, a row has appeared meanwhile, and decides.
            await self._reader.get(id_)
            return None
        try:
            return await self._end_queued(sale, record, reason)
        except EpochChanged:
            return None

    def _cancel_row(self, id_: ReservationId, reason: Reason) -> Work[Ended]:
        async def work(transaction: SaleTransaction) -> Ended:
            sale, order = await _locked(transaction, id_)
            return await self._cancel_locked(transaction, sale, order, reason)

        return work

    async def _cancel_locked(self, transaction: SaleTransaction, sale: Sale, order: Order, reason: Reason) -> Ended:
        if order.status is Status.CANCELLED:
            return Ended(order=order)
        cancelled = cancel(order, reason)
        if isinstance(cancelled, EndRefused):
            raise Conflict(cancelled.value, reservation_id=order.id)
        if not await transaction.replace_order(cancelled, expected=Status.AWAITING_PAYMENT):
            # A payment, which does not lock the sale, was first.
            raise Conflict(EndRefused.ALREADY_PAID.value, reservation_id=order.id)
        now_ms = self._clock.now_ms()
        await transaction.emit([event_of_order(cancelled, now_ms)])
        owed = await give_back(transaction, sale, [cancelled], "cancel", now_ms)
        return Ended(order=cancelled, owed=owed, now=True)

    async def _end_queued(self, sale: Sale, record: Record, reason: Reason) -> Ended:
        """End a reservation that has no order yet. No SQL stock was taken; if a row is met, that row decides."""
        id_ = record.reservation_id

        async def work(transaction: SaleTransaction) -> Ended:
            locked = transaction.sales.get(sale.id)
            if locked is None or (locked.authority, locked.epoch) != (Authority.REDIS, sale.epoch):
                raise EpochChanged(sale.id, sale.epoch, 0 if locked is None else locked.epoch)
            met = (await transaction.orders([id_])).get(id_)
            if met is not None:
                return await self._cancel_locked(transaction, locked, met, reason)
            now_ms = self._clock.now_ms()
            ended = _cancelled_before_order(locked, record, reason, now_ms)
            await transaction.insert_orders([ended])
            await transaction.emit([event_of_order(ended, now_ms)])
            owed = (_owed(locked, ended, Effect.RETURN),)
            await transaction.owe(owed)
            return Ended(order=ended, owed=owed, now=True)

        return await self._orders.transact([sale.id], work)

    # --- expiry -------------------------------------------------------------------------------------------------------

    async def _cancel_due(self, sale_id: SaleId, ids: Sequence[ReservationId]) -> int:
        async def work(transaction: SaleTransaction) -> tuple[int, tuple[Owed, ...]]:
            sale = transaction.sales[sale_id]
            now_ms = self._clock.now_ms()
            rows = (await transaction.orders(ids)).values()
            due = [cancel(order, Reason.PAYMENT_TIMEOUT, due_before_ms=now_ms) for order in rows]
            ended = [order for order in due if isinstance(order, Order)]
            won = await transaction.cancel_unpaid(
                [order.id for order in ended], Reason.PAYMENT_TIMEOUT, due_before_ms=now_ms
            )
            cancelled = [order for order in ended if order.id in won]
            await transaction.emit([event_of_order(order, now_ms) for order in cancelled])
            owed = await give_back(transaction, sale, cancelled, "timeout", now_ms)
            return len(cancelled), owed

        count, owed = await self._orders.transact([sale_id], work)
        if count:
            log(Action.ORDER_ENDED, sale_id=sale_id, reason=Reason.PAYMENT_TIMEOUT, orders=count)
            metrics.ENDED.labels(sale_id, Reason.PAYMENT_TIMEOUT.value).inc(count)
        if owed:
            await self._releases.try_apply(owed)
        return count


async def _locked(transaction: SaleTransaction, id_: ReservationId) -> tuple[Sale, Order]:
    order = (await transaction.orders([id_])).get(id_)
    if order is None:
        raise NotFound("reservation", id_)
    return transaction.sales[order.sale_id], order


async def give_back(
    transaction: SaleTransaction, sale: Sale, ended: Sequence[Order], kind: str, now_ms: int
) -> tuple[Owed, ...]:
    """Stock and allowance of orders that ended, in SQL; what is owed to Redis for them is written, and returned."""
    if not ended:
        return ()
    movements = [
        StockMovement(
            key=f"{kind}:{order.id}",
            sale_id=sale.id,
            kind=kind,
            delta=order.quantity,
            reservation_id=order.id,
            at_ms=now_ms,
        )
        for order in ended
    ]
    await transaction.move_stock(movements)
    units: dict[BuyerId, int] = {}
    for order in ended:
        units[order.buyer_id] = units.get(order.buyer_id, 0) - order.quantity
    await transaction.add_buyer_units(sale.id, units, sale.rules.limit_per_buyer)
    if sale.authority is Authority.SQL:
        # Under `sql` nothing is owed: the loader reads the rows as they are.
        return ()
    owed = tuple(_owed(sale, order, Effect.RETURN) for order in ended)
    await transaction.owe(owed)
    return owed


def _owed(sale: Sale, order: Order, effect: Effect) -> Owed:
    """To the buyer's home of this epoch: the load put the order there, wherever its units came from at first."""
    home = home_segment(order.id, sale.segments)
    return Owed(reservation_id=order.id, sale_id=sale.id, segment=home, epoch=sale.epoch, effect=effect)


def _cancelled_before_order(sale: Sale, record: Record, reason: Reason, now_ms: int) -> Order:
    return Order(
        id=record.reservation_id,
        sale_id=sale.id,
        buyer_id=record.buyer_id,
        batch_id=BatchId(record.batch_id),
        segment=home_segment(record.reservation_id, sale.segments),
        epoch=sale.epoch,
        quantity=record.quantity,
        status=Status.CANCELLED,
        reason=reason,
        order_no=None,
        amount=sale.rules.price * record.quantity,
        currency=sale.rules.currency,
        fingerprint=record.fingerprint,
        coupon_code=None,
        metadata=None,
        created_at_ms=record.created_at_ms,
        ordered_at_ms=now_ms,
        expires_at_ms=None,
        window_extended=False,
        paid_by=None,
        restocked=False,
    )
