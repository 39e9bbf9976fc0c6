"""The order: the durable row made from a winner, and the pure decision of the order transaction (design §3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from service.domain.batch import Candidate
from service.domain.ids import BatchId, BuyerId, OrderNo, PaymentId, ReservationId, SaleId, order_no
from service.domain.reservation import FINAL, HOLDS_STOCK, Reason, Reservation, Status
from service.domain.sale import Sale
from service.domain.stock import Effect


@dataclass(frozen=True, kw_only=True)
class Order:
    """A row of `orders`. Rejections and cancellations before an order have a row too: an id that ended is decided for
    ever.

    `epoch` is the epoch it was decided in; `took_stock` says whether SQL gave it units (a rejected row never had any).
    """

    id: ReservationId
    sale_id: SaleId
    buyer_id: BuyerId
    batch_id: BatchId | None
    segment: int
    epoch: int
    quantity: int
    status: Status
    reason: Reason | None
    order_no: OrderNo | None
    amount: int
    currency: str
    fingerprint: str
    coupon_code: str | None
    metadata: dict[str, str] | None
    created_at_ms: int
    ordered_at_ms: int
    expires_at_ms: int | None
    window_extended: bool
    paid_by: PaymentId | None
    restocked: bool

    @property
    def holds_stock(self) -> bool:
        """Its units are not for sale: a refunded order keeps them unless it was restocked (I1)."""
        return self.status in HOLDS_STOCK or (self.status is Status.REFUNDED and not self.restocked)

    @property
    def is_live(self) -> bool:
        """It counts against its buyer's limit (I3)."""
        return self.holds_stock

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    def as_reservation(self) -> Reservation:
        return Reservation(
            id=self.id,
            sale_id=self.sale_id,
            buyer_id=self.buyer_id,
            quantity=self.quantity,
            status=self.status,
            reason=self.reason,
            order_no=self.order_no,
            amount=self.amount,
            currency=self.currency,
            created_at_ms=self.created_at_ms,
            expires_at_ms=self.expires_at_ms if self.status is Status.AWAITING_PAYMENT else None,
        )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A candidate that comes before the order transaction.

    `holds_redis` says that a slot of the current epoch holds its units, so that a rejection owes Redis an effect. A
    claim with `rejected` set is not weighed any more: Redis refused it under the same epoch.
    """

    candidate: Candidate
    batch_id: BatchId
    segment: int
    created_at_ms: int
    deadline_ms: int | None
    holds_redis: bool
    rejected: Reason | None = None


@dataclass(frozen=True, kw_only=True)
class Owed:
    """An effect owed to Redis: applied and cleared only in the epoch it names (design §3.3)."""

    reservation_id: ReservationId
    sale_id: SaleId
    segment: int
    epoch: int
    effect: Effect


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the order transaction does with its claims, in order. `existing` are rows met: they decide for
    themselves.

    `owed` is to be written; `owed_before` is what SQL owes already to the rows met. An effect is chosen once, with the
    row's end, and kept there until it is applied: whoever meets the row later sends that very one, or nothing.
    """

    accepted: tuple[Order, ...]
    rejected: tuple[Order, ...]
    existing: tuple[Order, ...]
    owed: tuple[Owed, ...]
    owed_before: tuple[Owed, ...] = ()


def decide_orders(
    sale: Sale,
    claims: Iterable[Claim],
    *,
    rows: Mapping[ReservationId, Order],
    buyer_units: Mapping[BuyerId, int],
    now_ms: int,
    owed: Mapping[ReservationId, Owed] | None = None,
) -> Decision:
    """Accept up to what the locked sale row has; reject the rest; leave ids that have rows alone.

    `owed` is what SQL owes to these ids already, read under the same lock as `rows`.
    """
    deciding = _Deciding(sale=sale, now_ms=now_ms, buyer_units=dict(buyer_units), owed=owed or {})
    seen: set[ReservationId] = set()
    for claim in claims:
        id_ = claim.candidate.reservation_id
        if id_ in seen:
            continue
        seen.add(id_)
        if id_ in rows:
            deciding.meet(rows[id_], claim)
        else:
            deciding.weigh(claim)
    return deciding.decision()


class _Deciding:
    """Running totals while one sale's claims are decided."""

    def __init__(
        self, *, sale: Sale, now_ms: int, buyer_units: dict[BuyerId, int], owed: Mapping[ReservationId, Owed]
    ) -> None:
        self._sale = sale
        self._now_ms = now_ms
        self._available = sale.available
        self._buyer_units = buyer_units
        self._owed_to = owed
        self._owed_before: list[Owed] = []
        self._accepted: list[Order] = []
        self._rejected: list[Order] = []
        self._existing: list[Order] = []
        self._owed: list[Owed] = []

    def meet(self, row: Order, claim: Claim) -> None:
        """A final row of which nothing is owed in this epoch has had its effect: the record, whatever the claim saw
        of it, has ended since."""
        self._existing.append(row)
        before = self._owed_to.get(row.id)
        if claim.holds_redis and before is not None and before.epoch == self._sale.epoch:
            self._owed_before.append(before)

    def weigh(self, claim: Claim) -> None:
        refused = claim.rejected or self._refuse(claim)
        if refused is None:
            self._accept(claim)
            return
        self._rejected.append(new_order(self._sale, claim, Status.REJECTED, refused, self._now_ms))
        if claim.holds_redis:
            # Whatever the reason: units that SQL does not have must not be sold again by Redis; and so all of the
            # claim's, also where SQL has a few (decision 28).
            short = claim.candidate.quantity > self._available
            self._owe(claim, Effect.WRITE_OFF if short else Effect.RETURN)

    def decision(self) -> Decision:
        return Decision(
            accepted=tuple(self._accepted),
            rejected=tuple(self._rejected),
            existing=tuple(self._existing),
            owed=tuple(self._owed),
            owed_before=tuple(self._owed_before),
        )

    def _refuse(self, claim: Claim) -> Reason | None:
        candidate = claim.candidate
        if claim.deadline_ms is not None and self._now_ms >= claim.deadline_ms:
            return Reason.NOT_CONFIRMED
        held = self._buyer_units.get(candidate.buyer_id, 0)
        if held + candidate.quantity > self._sale.rules.limit_per_buyer:
            return Reason.LIMIT_REACHED
        if candidate.quantity > self._available:
            return Reason.SOLD_OUT
        return None

    def _accept(self, claim: Claim) -> None:
        candidate = claim.candidate
        self._available -= candidate.quantity
        self._buyer_units[candidate.buyer_id] = self._buyer_units.get(candidate.buyer_id, 0) + candidate.quantity
        self._accepted.append(new_order(self._sale, claim, Status.AWAITING_PAYMENT, None, self._now_ms))

    def _owe(self, claim: Claim, effect: Effect) -> None:
        self._owed.append(
            Owed(
                reservation_id=claim.candidate.reservation_id,
                sale_id=self._sale.id,
                segment=claim.segment,
                epoch=self._sale.epoch,
                effect=effect,
            )
        )


def new_order(sale: Sale, claim: Claim, status: Status, reason: Reason | None, now_ms: int) -> Order:
    """The row of a claim in its first state: `awaiting_payment`, or a final one."""
    candidate = claim.candidate
    live = status is Status.AWAITING_PAYMENT
    return Order(
        id=candidate.reservation_id,
        sale_id=sale.id,
        buyer_id=candidate.buyer_id,
        batch_id=claim.batch_id,
        segment=claim.segment,
        epoch=sale.epoch,
        quantity=candidate.quantity,
        status=status,
        reason=reason,
        order_no=order_no(candidate.reservation_id) if live else None,
        amount=sale.rules.price * candidate.quantity,
        currency=sale.rules.currency,
        fingerprint=candidate.fingerprint,
        coupon_code=candidate.coupon_code,
        metadata=candidate.metadata,
        created_at_ms=claim.created_at_ms,
        ordered_at_ms=now_ms,
        expires_at_ms=now_ms + sale.rules.payment_window_s * 1000 if live else None,
        window_extended=False,
        paid_by=None,
        restocked=False,
    )


class EndRefused(StrEnum):
    """Why an order cannot be ended as asked. The values are the API's codes."""

    ALREADY_PAID = "already_paid"
    ALREADY_FINAL = "already_final"
    NOT_DUE = "not_due"


def cancel(order: Order, reason: Reason, *, due_before_ms: int | None = None) -> Order | EndRefused:
    """The order cancelled, or why not. With `due_before_ms` only an order that expired by then is cancelled."""
    if order.is_final:
        return EndRefused.ALREADY_FINAL
    if order.status is not Status.AWAITING_PAYMENT:
        return EndRefused.ALREADY_PAID
    if due_before_ms is not None and (order.expires_at_ms is None or order.expires_at_ms > due_before_ms):
        return EndRefused.NOT_DUE
    return replace(order, status=Status.CANCELLED, reason=reason)
