"""A sale: its rules, whether it sells (status) and who decides on its stock (authority)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from service.domain.ids import SaleId


class SaleStatus(StrEnum):
    DRAFT = "draft"
    READY = "ready"
    OPEN = "open"
    CLOSED = "closed"
    SETTLED = "settled"


SALE_TRANSITIONS: dict[tuple[SaleStatus, str], SaleStatus] = {
    (SaleStatus.DRAFT, "warm"): SaleStatus.READY,
    (SaleStatus.READY, "warm"): SaleStatus.READY,
    (SaleStatus.OPEN, "warm"): SaleStatus.OPEN,
    (SaleStatus.CLOSED, "warm"): SaleStatus.CLOSED,
    (SaleStatus.READY, "open"): SaleStatus.OPEN,
    (SaleStatus.OPEN, "open"): SaleStatus.OPEN,
    (SaleStatus.CLOSED, "open"): SaleStatus.OPEN,
    (SaleStatus.OPEN, "close"): SaleStatus.CLOSED,
    (SaleStatus.CLOSED, "close"): SaleStatus.CLOSED,
    (SaleStatus.CLOSED, "settle"): SaleStatus.SETTLED,
    (SaleStatus.SETTLED, "settle"): SaleStatus.SETTLED,
}
"""(status, act) -> status. What is not in the table is refused: `settle` has no way back."""


class Authority(StrEnum):
    """Who decides on stock now (design §3.3)."""

    SQL = "sql"
    LOADING = "loading"
    REDIS = "redis"


AUTHORITY_TRANSITIONS: dict[tuple[Authority, Authority], int] = {
    (Authority.SQL, Authority.LOADING): 1,
    (Authority.LOADING, Authority.LOADING): 1,
    (Authority.LOADING, Authority.REDIS): 0,
    (Authority.LOADING, Authority.SQL): 1,
    (Authority.REDIS, Authority.SQL): 1,
}
"""(from, to) -> by how much the epoch grows. Only the completion of a load keeps the epoch it was loaded under."""


class OnRedisLoss(StrEnum):
    """Whether the gate opens on SQL while Redis is rebuilt."""

    REJECT = "reject"
    SQL = "sql"


@dataclass(frozen=True, kw_only=True)
class SaleRules:
    """What an operator decides. `price` is in minor units a unit; times are UTC milliseconds."""

    sku: str
    stock: int
    price: int
    currency: str
    limit_per_buyer: int
    opens_at_ms: int | None = None
    closes_at_ms: int | None = None
    payment_window_s: int
    queue_deadline_s: int
    on_redis_loss: OnRedisLoss = OnRedisLoss.REJECT
    wanted_authority: Authority = Authority.REDIS
    segments: int = 1


@dataclass(frozen=True, kw_only=True)
class ServerIds:
    """Which Redis answered: `run_id` and `master_replid` of INFO (design §3.3)."""

    run_id: str
    replid: str


@dataclass(frozen=True, kw_only=True)
class Sale:
    """The sale's row in SQL.

    `initial` and `adjusted` are units; `available` is what SQL has left. `older_deadline_ms` is the moment after
    which no candidate of an older epoch can become an order any more (None: no older epoch ever sold). `wants_redis`
    is set by warm: the leader takes the sale down the road to Redis. `lost` is a reported loss, sticky until the
    leader acted on it. `segments` is the count of this epoch; `rules.segments` is what the next load will use (design
    §3.3).
    """

    id: SaleId
    rules: SaleRules
    status: SaleStatus
    authority: Authority
    epoch: int
    epoch_started_at_ms: int
    initial: int
    adjusted: int
    available: int
    wants_redis: bool
    sold_in_epoch: bool
    older_deadline_ms: int | None
    lost: ServerIds | None
    lost_at_ms: int | None
    created_at_ms: int
    segments: int = 1

    @property
    def capacity(self) -> int:
        """Units that may be live at most (I2)."""
        return self.initial + self.adjusted


class Gate(StrEnum):
    """What a sale's row alone says to a new request (design §3.1 step 1)."""

    REDIS = "redis"
    SQL = "sql"
    NOT_OPEN = "sale_not_open"
    CLOSED = "sale_closed"
    SHUT = "unavailable"


def gate(sale: Sale, now_ms: int) -> Gate:
    """Whether a request may join a batch, and which road the batch takes."""
    match sale.status:
        case SaleStatus.DRAFT | SaleStatus.READY:
            return Gate.NOT_OPEN
        case SaleStatus.CLOSED | SaleStatus.SETTLED:
            return Gate.CLOSED
        case SaleStatus.OPEN:
            return _gate_of_open(sale, now_ms)
        case unreachable:
            assert_never(unreachable)


def _gate_of_open(sale: Sale, now_ms: int) -> Gate:
    if sale.rules.opens_at_ms is not None and now_ms < sale.rules.opens_at_ms:
        return Gate.NOT_OPEN
    if sale.rules.closes_at_ms is not None and now_ms >= sale.rules.closes_at_ms:
        return Gate.CLOSED
    match sale.authority:
        case Authority.REDIS:
            return Gate.SHUT if sale.lost else Gate.REDIS
        case Authority.SQL:
            return Gate.SQL if sells_on_sql(sale, now_ms) else Gate.SHUT
        case Authority.LOADING:
            return Gate.SHUT
        case unreachable:
            assert_never(unreachable)


def sells_on_sql(sale: Sale, now_ms: int) -> bool:
    """Under `sql` the gate opens when SQL is the sale's home, or when a loss may be bridged and older messages are
    past."""
    if sale.rules.wanted_authority is Authority.SQL:
        return True
    drained = sale.older_deadline_ms is None or now_ms >= sale.epoch_started_at_ms + SQL_DRAIN_MS
    return sale.rules.on_redis_loss is OnRedisLoss.SQL and drained


SQL_DRAIN_MS = 45_000
"""How long older messages have the order transaction to themselves after a loss: 60 s of UNKNOWN (§3.2) and one check
of 30 s."""


def older_may_still_win(sale: Sale, now_ms: int) -> bool:
    """Whether a candidate of an older epoch may still become an order: then a 409 is not final and a 404 is not
    known."""
    return sale.older_deadline_ms is not None and now_ms < sale.older_deadline_ms
