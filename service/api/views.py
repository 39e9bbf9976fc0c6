"""What a client gets: the domain as JSON, and the schemas of /openapi.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.core.sales import PublicSale, StockLevel
from service.domain.event import rfc3339
from service.domain.ledger import Ledger
from service.domain.payment import PaymentOutcome
from service.domain.reservation import Reason, Reservation, Status
from service.domain.sale import Authority, OnRedisLoss, Sale, SaleStatus

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="RFC 3339, UTC, milliseconds.")]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all answers."""


class ReservationView(View, frozen=True, kw_only=True):
    """A reservation. `expires_in_ms` is counted by the server's clock: a client's clock does not matter."""

    id: str
    sale_id: str
    buyer_id: str
    quantity: int
    status: Status
    reason: Reason | None
    order_no: str | None
    amount: int
    currency: str
    created_at: Moment
    expires_at: Moment | None
    expires_in_ms: int | None


class PaymentView(View, frozen=True, kw_only=True):
    applied: PaymentOutcome


class SaleView(View, frozen=True, kw_only=True):
    """A sale as buyers see it."""

    id: str
    status: SaleStatus
    stock_level: StockLevel
    opens_at: Moment | None
    closes_at: Moment | None
    server_time: Moment
    limit_per_buyer: int
    price: int
    currency: str


class AdminSaleView(View, frozen=True, kw_only=True):
    """A sale as its operator sees it. `lost`: this sale's Redis is not the one that was loaded; it is being rebuilt."""

    id: str
    sku: str
    status: SaleStatus
    authority: Authority
    wanted_authority: Authority
    epoch: int
    lost: bool
    initial: int
    adjusted: int
    available: int
    price: int
    currency: str
    limit_per_buyer: int
    opens_at: Moment | None
    closes_at: Moment | None
    payment_window_s: int
    queue_deadline_s: int
    on_redis_loss: OnRedisLoss
    segments: int
    created_at: Moment


class SalesView(View, frozen=True, kw_only=True):
    sales: list[AdminSaleView]


class SegmentView(View, frozen=True, kw_only=True):
    """One segment's slot in Redis at one instant. Not `readable`: lost or away, and nothing is known of it."""

    segment: int
    readable: bool
    granted: int | None = None
    available: int | None = None
    held: int | None = None
    queued: int | None = None
    ordered: int | None = None
    buyers_units: int | None = None
    undelivered_batches: int | None = None


class LedgerView(View, frozen=True, kw_only=True):
    """Every term of the conservation of stock and money. `quiet`: nothing is `under_way`, a sentence each; `problems`:
    what is broken."""

    sale_id: str
    authority: str
    epoch: int
    sql: dict[str, int]
    segments: list[SegmentView]
    balanced: bool
    quiet: bool
    under_way: list[str]
    problems: list[str]


class HealthView(View, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


class ReadyView(View, frozen=True, kw_only=True):
    ready: Literal[True] = True
    missing: list[str] = []
    advice: list[str] = []


def reservation_view(reservation: Reservation, now_ms: int) -> ReservationView:
    expires = reservation.expires_at_ms
    return ReservationView(
        id=reservation.id,
        sale_id=reservation.sale_id,
        buyer_id=reservation.buyer_id,
        quantity=reservation.quantity,
        status=reservation.status,
        reason=reservation.reason,
        order_no=reservation.order_no,
        amount=reservation.amount,
        currency=reservation.currency,
        created_at=rfc3339(reservation.created_at_ms),
        expires_at=_moment(expires),
        expires_in_ms=None if expires is None else max(0, expires - now_ms),
    )


def sale_view(public: PublicSale, now_ms: int) -> SaleView:
    sale, rules = public.sale, public.sale.rules
    return SaleView(
        id=sale.id,
        status=sale.status,
        stock_level=public.stock_level,
        opens_at=_moment(rules.opens_at_ms),
        closes_at=_moment(rules.closes_at_ms),
        server_time=rfc3339(now_ms),
        limit_per_buyer=rules.limit_per_buyer,
        price=rules.price,
        currency=rules.currency,
    )


def admin_sale_view(sale: Sale) -> AdminSaleView:
    rules = sale.rules
    return AdminSaleView(
        id=sale.id,
        sku=rules.sku,
        status=sale.status,
        authority=sale.authority,
        wanted_authority=rules.wanted_authority,
        epoch=sale.epoch,
        lost=sale.lost is not None,
        initial=sale.initial,
        adjusted=sale.adjusted,
        available=sale.available,
        price=rules.price,
        currency=rules.currency,
        limit_per_buyer=rules.limit_per_buyer,
        opens_at=_moment(rules.opens_at_ms),
        closes_at=_moment(rules.closes_at_ms),
        payment_window_s=rules.payment_window_s,
        queue_deadline_s=rules.queue_deadline_s,
        on_redis_loss=rules.on_redis_loss,
        segments=sale.segments,
        created_at=rfc3339(sale.created_at_ms),
    )


def sales_view(sales: Sequence[Sale]) -> SalesView:
    return SalesView(sales=[admin_sale_view(sale) for sale in sales])


def ledger_view(ledger: Ledger) -> LedgerView:
    return LedgerView(
        sale_id=ledger.sale_id,
        authority=ledger.authority,
        epoch=ledger.epoch,
        sql=asdict(ledger.sql),
        segments=[
            SegmentView(segment=segment, readable=slot is not None, **({} if slot is None else asdict(slot)))
            for segment, slot in sorted(ledger.slots.items())
        ],
        balanced=ledger.balanced,
        quiet=ledger.quiet,
        under_way=list(ledger.under_way()),
        problems=list(ledger.problems()),
    )


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
