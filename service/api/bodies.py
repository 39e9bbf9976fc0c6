"""What a client may send: strict structs, from which /openapi.json is made too, and checks that no schema can say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.domain.errors import InvalidRequest
from service.domain.ids import SALE_ID
from service.domain.payment import PaymentStatus
from service.domain.replay import AGE_MAX_S, ID_MAX, IDS_MAX, WHY_MAX, Source, check_why
from service.domain.sale import OnRedisLoss

QUANTITY_MAX = 10_000
STOCK_MAX = 1_000_000_000
PRICE_MAX = 100_000_000_000
"""Minor units. QUANTITY_MAX times this is below 2^53: a JavaScript client reads every amount exactly."""
AMOUNT_MAX = PRICE_MAX * QUANTITY_MAX
BUYER_BYTES_MAX = 128
WINDOW_MAX_S = 86_400

Quantity = Annotated[int, Meta(ge=1, le=QUANTITY_MAX)]
BuyerText = Annotated[str, Meta(min_length=1, max_length=BUYER_BYTES_MAX, description="Printable, 128 bytes at most.")]
Metadata = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=40)], Annotated[str, Meta(max_length=500)]],
    Meta(max_length=20),
]
SaleText = Annotated[str, Meta(pattern=f"^{SALE_ID.pattern}$", max_length=48)]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$", max_length=3, description="ISO 4217.")]
Time = Annotated[datetime, Meta(tz=True, description="RFC 3339.")]
Price = Annotated[int, Meta(ge=0, le=PRICE_MAX, description="Minor units of the currency, for one unit.")]
Sku = Annotated[str, Meta(min_length=1, max_length=64)]
Window = Annotated[int, Meta(ge=1, le=WINDOW_MAX_S, description="Seconds.")]
Why = Annotated[str, Meta(min_length=1, max_length=WHY_MAX)]
IdText = Annotated[str, Meta(min_length=1, max_length=ID_MAX)]
Ids = Annotated[tuple[IdText, ...], Meta(max_length=IDS_MAX)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of all bodies."""


class NoBody(Body, frozen=True, kw_only=True):
    """Nothing, or an empty object."""


class ReserveBody(Body, frozen=True, kw_only=True):
    buyer_id: BuyerText
    quantity: Quantity
    coupon_code: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    metadata: Metadata | None = None

    def __post_init__(self) -> None:
        check_printable("buyer_id", self.buyer_id, BUYER_BYTES_MAX)
        if self.coupon_code is not None:
            check_printable("coupon_code", self.coupon_code, 4 * 64)


class CancelBody(Body, frozen=True, kw_only=True):
    reason: str | None = None


class RefundBody(Body, frozen=True, kw_only=True):
    reason: Why
    restock: bool


class PaymentBody(Body, frozen=True, kw_only=True):
    payment_id: Annotated[str, Meta(min_length=1, max_length=128)]
    reservation_id: Annotated[str, Meta(min_length=1, max_length=80, description="As the checkout was given it.")]
    status: PaymentStatus
    amount: Annotated[int, Meta(ge=0, le=AMOUNT_MAX, description="Minor units.")]
    currency: Currency

    def __post_init__(self) -> None:
        check_printable("payment_id", self.payment_id, 128)
        # Not held to the form of an id: money for what is no reservation is stored, and becomes a refund.
        check_printable("reservation_id", self.reservation_id, 80)
        _check_currency(self.currency)


class SaleBody(Body, frozen=True, kw_only=True):
    id: SaleText
    sku: Sku
    stock: Annotated[int, Meta(ge=0, le=STOCK_MAX)]
    price: Price
    currency: Currency
    limit_per_buyer: Quantity
    opens_at: Time | None = None
    closes_at: Time | None = None
    payment_window_s: Window | None = None
    queue_deadline_s: Window | None = None
    on_redis_loss: OnRedisLoss = OnRedisLoss.REJECT
    authority: Literal["redis", "sql"] = "redis"
    segments: int = 1

    def __post_init__(self) -> None:
        if not SALE_ID.fullmatch(self.id):
            raise InvalidRequest("id", "1 to 48 of a-z, 0-9, - and _, the first a letter or digit")
        if self.segments != 1:
            raise InvalidRequest("segments", "this release has one segment a sale: send 1, or leave it out")
        check_printable("sku", self.sku, 4 * 64)
        _check_currency(self.currency)
        _check_window(self.opens_at, self.closes_at)


class SalePatch(Body, frozen=True, kw_only=True):
    """What it names is changed; a time of null takes the time away."""

    sku: Sku | UnsetType = UNSET
    price: Price | UnsetType = UNSET
    currency: Currency | UnsetType = UNSET
    limit_per_buyer: Quantity | UnsetType = UNSET
    opens_at: Time | UnsetType | None = UNSET
    closes_at: Time | UnsetType | None = UNSET
    payment_window_s: Window | UnsetType = UNSET
    queue_deadline_s: Window | UnsetType = UNSET
    on_redis_loss: OnRedisLoss | UnsetType = UNSET

    def __post_init__(self) -> None:
        if all(getattr(self, name) is UNSET for name in self.__struct_fields__):
            raise InvalidRequest("body", "name at least one rule to change")
        if self.sku is not UNSET:
            check_printable("sku", self.sku, 4 * 64)
        if self.currency is not UNSET:
            _check_currency(self.currency)
        _check_window(self.opens_at or None, self.closes_at or None)


class OpenBody(Body, frozen=True, kw_only=True):
    warm: bool = False


class StockBody(Body, frozen=True, kw_only=True):
    adjustment_id: Annotated[str, Meta(min_length=1, max_length=64)]
    delta: Annotated[int, Meta(ge=-STOCK_MAX, le=STOCK_MAX, description="Units; not 0.")]

    def __post_init__(self) -> None:
        check_printable("adjustment_id", self.adjustment_id, 64)
        if self.delta == 0:
            raise InvalidRequest("delta", "0 changes nothing")


class ReplayScopeBody(Body, frozen=True, kw_only=True):
    """Nothing named: everything of the source."""

    source: Source
    sale: SaleText | None = None
    reservation_ids: Ids = ()
    batch_ids: Ids = ()
    older_than_s: Annotated[int, Meta(ge=0, le=AGE_MAX_S, description="Seconds.")] = 0


class ReplayBody(Body, frozen=True, kw_only=True):
    """`why` is required to act: it goes into the audit."""

    scope: ReplayScopeBody
    dry_run: bool = True
    why: Why | None = None

    def __post_init__(self) -> None:
        if not self.dry_run or self.why is not None:
            check_why(self.why or "")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999


def to_ms(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // timedelta(milliseconds=1)


def check_printable(field: str, value: str, bytes_max: int) -> None:
    """Ids are compared byte by byte and shown to people: no control characters, nothing invisible."""
    if not value.isprintable():
        raise InvalidRequest(field, "has a character that cannot be printed")
    if not value.isascii() and len(value.encode()) > bytes_max:
        raise InvalidRequest(field, f"has more than {bytes_max} bytes in UTF-8")


def _check_currency(currency: str) -> None:
    if not currency.isalpha():
        raise InvalidRequest("currency", "three capital letters of ISO 4217")


def _check_window(opens_at: datetime | None, closes_at: datetime | None) -> None:
    opens, closes = to_ms(opens_at), to_ms(closes_at)
    for field, at_ms in (("opens_at", opens), ("closes_at", closes)):
        if at_ms is not None and not 0 <= at_ms <= _LAST_MS:
            raise InvalidRequest(field, "is not a time from 1970 to 9999")
    if opens is not None and closes is not None and closes <= opens:
        raise InvalidRequest("closes_at", "must be after opens_at")
