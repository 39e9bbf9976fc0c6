"""SQL as the core sees it. Whatever moves stock runs inside `OrderStore.transact`, behind the sale's row lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from service.domain.event import Event
from service.domain.ids import BatchId, BuyerId, EventId, PaymentId, ReservationId, SaleId
from service.domain.ledger import SqlTerms
from service.domain.order import Order, Owed
from service.domain.payment import Payment, PaymentOutcome, RefundReason
from service.domain.reservation import Reason, Status
from service.domain.sale import Authority, Sale, SaleRules, SaleStatus, ServerIds
from service.domain.stock import Effect, Record, Slot

SALES_MAX = 1000
"""Sales that are not settled, at most: each process reads them twice a second. One more is not created."""
SALES_READ_MAX = SALES_MAX + 100
"""What `SaleStore.sales` returns at most. More than SALES_MAX, as creates that run at once do not see each other."""

LEADER_LEASE = "leader"
"""The name of the lease that `SaleStore.change_authority` looks at."""


@dataclass(frozen=True, kw_only=True)
class StockMovement:
    """A row of the append-only ledger; `delta` is added to the sale's `available`. `key` makes the row unique."""

    key: str
    sale_id: SaleId
    kind: str
    delta: int
    reservation_id: ReservationId | None = None
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class StoredPayment:
    payment: Payment
    outcome: PaymentOutcome
    received_at_ms: int


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """An operator's change of stock. `applied`: SQL has it. `owed_epoch`: Redis shall still get `owed_units`, and only
    in this epoch (a later one was loaded with them); None: nothing is owed.

    Withdrawn, because it was refused: `applied` with a delta of 0. What Redis had taken for it already is owed back.
    """

    id: str
    sale_id: SaleId
    delta: int
    applied: bool
    owed_epoch: int | None
    owed_units: int = 0

    @property
    def withdrawn(self) -> bool:
        return self.applied and self.delta == 0


class SaleTransaction(Protocol):
    """An open transaction that holds the locks of the sale rows it was opened for, in ascending order of id."""

    @property
    def sales(self) -> Mapping[SaleId, Sale]:
        """The locked rows. A sale that does not exist is absent."""

    async def orders(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]: ...

    async def decisions(self, batch_ids: Sequence[BatchId]) -> dict[BatchId, frozenset[ReservationId]]:
        """The losers of the batches that have a decision row."""

    async def buyer_units(self, sale_id: SaleId, buyers: Sequence[BuyerId]) -> dict[BuyerId, int]: ...

    async def insert_orders(self, orders: Sequence[Order]) -> None: ...

    async def replace_order(self, order: Order, *, expected: Status) -> bool:
        """The one conditional UPDATE that decides pay against cancel: False if the row is no longer `expected`."""

    async def cancel_unpaid(
        self, ids: Sequence[ReservationId], reason: Reason, *, due_before_ms: int
    ) -> frozenset[ReservationId]:
        """`replace_order` for many that are cancelled alike: those that were still waiting for their payment, and
        expired by then."""

    async def move_stock(self, movements: Sequence[StockMovement]) -> None:
        """Append to the ledger and add the deltas to `available`, never below 0; a key that is there is no second move
        (InvariantBroken for both)."""

    async def add_buyer_units(self, sale_id: SaleId, deltas: Mapping[BuyerId, int], limit: int) -> None:
        """Conditional: a counter never passes `limit` nor falls below 0 (InvariantBroken)."""

    async def record_decision(
        self, sale_id: SaleId, batch_id: BatchId, losers: Sequence[ReservationId], at_ms: int
    ) -> None:
        """Who lost in a batch, before a loser is answered. Repeatable."""

    async def emit(self, events: Sequence[Event]) -> None:
        """Into the outbox. An event id that is there already is left alone."""

    async def owe(self, owed: Sequence[Owed]) -> None:
        """Effects owed to Redis; one a reservation: a newer epoch's replaces it, and within an epoch the first stays,
        but for KEEP."""

    async def owed_to(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Owed]:
        """What is owed to Redis of these ids, in whatever epoch."""

    async def payment(self, id: PaymentId) -> StoredPayment | None: ...

    async def insert_payment(self, stored: StoredPayment) -> None: ...

    async def resolve_payment(self, id: PaymentId, outcome: PaymentOutcome, at_ms: int) -> None: ...

    async def waiting_payments_of(self, ids: Sequence[ReservationId]) -> Sequence[StoredPayment]: ...

    async def insert_refund(self, payment: Payment, reason: RefundReason, at_ms: int) -> None:
        """The one refund record of a payment: unique by payment id."""

    async def adjustment(self, id: str) -> Adjustment | None: ...

    async def put_adjustment(self, adjustment: Adjustment, at_ms: int) -> None:
        """Insert, or replace the one with its id. The sale's `adjusted` follows `applied`; `available` is
        move_stock's."""

    async def audit(
        self, actor: str, act: str, subject: str, *, why: str, detail: Mapping[str, object], at_ms: int
    ) -> None: ...


T = TypeVar("T")
Work = Callable[[SaleTransaction], Awaitable[T]]


class OrderStore(Protocol):
    async def transact(self, sale_ids: Sequence[SaleId], work: Work[T]) -> T:
        """Lock the sale rows, ascending, run `work`, COMMIT.

        Deadlock and lock-wait errors run it again, with jitter and a bound. StoreUnavailable: the COMMIT may have
        happened; `work` must be such that running it again is right (rows it meets decide).
        """

    async def order(self, id: ReservationId) -> Order | None: ...

    async def orders(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]: ...

    async def live_orders(self, sale_id: SaleId, buyers: Sequence[BuyerId]) -> dict[BuyerId, Order]:
        """The newest order of each of these buyers that counts against the limit."""

    async def batch_rows(self, batch_id: BatchId) -> tuple[frozenset[ReservationId], frozenset[ReservationId] | None]:
        """Of one batch: ids whose row this batch made, and the losers of its decision row (None: there is none)."""

    async def epoch_deadline_ms(self, sale_id: SaleId, epoch: int) -> int | None:
        """Until when candidates of this epoch may become orders (UTC milliseconds): settled when it ended, whatever
        the rules have become since. None: it has not ended, or never was."""

    async def expired(self, before_ms: int, limit: int, *, besides: Collection[SaleId] = ()) -> Sequence[Order]:
        """Unpaid orders whose time was over before this, oldest first; not those of the sales `besides`."""

    async def owed(self, limit: int, *, besides: Collection[Slot] = ()) -> Sequence[Owed]:
        """Effects owed in their sale's current epoch, while Redis is its authority; not to the slots `besides`."""

    async def clear_owed(self, owed: Sequence[Owed]) -> None:
        """They are applied. An effect of another epoch is left."""

    async def unsent_events(self, limit: int) -> Sequence[Event]:
        """The outbox, in the order of its rows."""

    async def mark_sent(self, ids: Sequence[EventId]) -> None: ...

    async def payments_with_order(self, limit: int) -> Sequence[StoredPayment]:
        """Waiting payments whose reservation has a row, oldest first."""

    async def overdue_payments(self, before_ms: int, limit: int) -> Sequence[StoredPayment]:
        """Waiting payments whose sale does not exist, or whose queue deadline, counted from their receipt, was over
        before this; oldest first."""

    async def terms(self, sale_id: SaleId) -> SqlTerms:
        """Every SQL term of the ledger in one snapshot."""

    async def unfinished_adjustments(self, before_ms: int, limit: int) -> Sequence[Adjustment]:
        """Last written before this, and not applied or with something owed to Redis; oldest first."""

    async def postpone_adjustments(self, ids: Sequence[str], at_ms: int) -> None:
        """They could not be finished: behind those that were not tried yet."""

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What the loader reads at one instant, under the sale's row lock (design §3.3). What is held, and by whom, follows
    from the records."""

    available: int
    records: Sequence[Record]


@dataclass(frozen=True, kw_only=True)
class OwedUnlink:
    """An epoch that has ended and may have keys in Redis. `due_at_ms`: when to look (again)."""

    sale_id: SaleId
    epoch: int
    segments: int
    ended_at_ms: int
    due_at_ms: int


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A bearer key as stored: SHA-256 of the secret, never the secret."""

    id: str
    hash: str
    role: str
    created_at_ms: int


class SaleStore(Protocol):
    """Sale rows, the road of authority, the leader's lease, keys. Changes of authority are compare-and-set."""

    async def create(self, sale_id: SaleId, rules: SaleRules, now_ms: int) -> Sale:
        """A draft under `sql`, epoch 1, all its stock available. Conflict if the id is taken by other rules
        (`sale_exists`), or if SALES_MAX sales are not settled (`too_many_sales`)."""

    async def sale(self, sale_id: SaleId) -> Sale | None: ...

    async def sales(self) -> Sequence[Sale]:
        """Every sale that is not settled, newest first, and those settled last; bounded by SALES_READ_MAX."""

    async def view(self) -> Sequence[Sale]:
        """As `sales`, to be read all the time: a settled sale that has left Redis is shown as it was when this process
        first saw it so, and any settled one up to 10 s late where this process never saw it alive."""

    async def set_status(self, sale_id: SaleId, expected: SaleStatus, status: SaleStatus, now_ms: int) -> bool:
        """Compare-and-set. `open` under the authority `redis` also sets `sold_in_epoch`, before anything can be
        sold."""

    async def want_redis(self, sale_id: SaleId) -> None:
        """Warm: the leader shall take this sale to its wanted authority."""

    async def change_rules(self, sale_id: SaleId, change: Callable[[Sale], SaleRules], now_ms: int) -> Sale:
        """Other rules from now on; the sale with them. `change` makes them of the locked row: of two changes at a time
        the second builds on the first, and what it checks stays so until this COMMIT. Stock is not among them:
        InvalidRequest, it is changed by an adjustment."""

    async def report_lost(self, sale_id: SaleId, epoch: int, found: ServerIds, now_ms: int) -> bool:
        """Sticky, and only while the authority is `redis` in this epoch: True if it is the first report."""

    async def dismiss_lost(self, sale_id: SaleId, epoch: int) -> None:
        """The leader found the report to come from a misrouted process."""

    async def change_authority(
        self, sale_id: SaleId, *, leader: str, expected: tuple[Authority, int], to: Authority, now_ms: int
    ) -> Sale | None:
        """Compare-and-set on (authority, epoch), only while `leader` holds the lease. None: someone else was there.

        The epoch grows as AUTHORITY_TRANSITIONS says; the epoch left gets its deadline, now + queue deadline
        (`epoch_deadline_ms`); leaving `redis` after it sold moves `older_deadline_ms` to it. A report of loss is
        cleared on the way. Arriving at `redis` with the status `open` sets `sold_in_epoch`; every other arrival clears
        it. Arriving at `loading` takes over the segment count that the rules want.
        """

    async def snapshot(self, sale_id: SaleId, epoch: int) -> Snapshot | None:
        """One snapshot under the row lock; settles what older epochs owed to Redis. None: no longer loading this
        epoch."""

    async def owed_unlinks(self, due_before_ms: int, limit: int) -> Sequence[OwedUnlink]:
        """What is due by then, the longest due first."""

    async def unlinked(self, owed: OwedUnlink, again_at_ms: int | None) -> None:
        """Its keys are gone, for good or until another look. One that was owed again meanwhile stays so."""

    async def owe_unlink(self, sale_id: SaleId, epoch: int, at_ms: int) -> None:
        """Look at this epoch again then, and not before. Nothing where its first look is still due, or where it has not
        ended: that will owe."""

    async def acquire_lease(self, name: str, owner: str, now_ms: int, ttl_ms: int) -> bool:
        """Take or renew it; False while another owner's is alive."""

    async def release_lease(self, name: str, owner: str) -> None: ...

    async def keys(self) -> Sequence[ApiKey]: ...

    async def add_key(self, key: ApiKey) -> None: ...

    async def revoke_key(self, key_id: str, actor: str, at_ms: int) -> bool:
        """It is gone, and an audit row says by whom. False: there is none of this id."""

    async def schema_problem(self) -> str | None:
        """Why this database is not as this release needs it, with the remedy; None: it is. SettingRefused: it is
        another application's."""


__all__ = [
    "LEADER_LEASE",
    "SALES_MAX",
    "SALES_READ_MAX",
    "Adjustment",
    "ApiKey",
    "Effect",
    "OrderStore",
    "OwedUnlink",
    "SaleStore",
    "SaleTransaction",
    "Snapshot",
    "StockMovement",
    "StoredPayment",
    "Work",
]
