"""Stand-ins for the use cases: each says what it is told to say, and remembers what it was asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx
import jwt

from service.api.app import create_app
from service.api.services import ApiServices
from service.core.broker_look import BrokerNumbers, DeadLetters
from service.core.keys import Principal, Role
from service.core.reserve import ReserveAnswer, ReserveRequest
from service.core.sales import PublicSale, StockLevel
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId, reservation_id
from service.domain.ledger import Ledger, SqlTerms
from service.domain.payment import Payment, PaymentOutcome
from service.domain.replay import Absence, Item, Now, Outcome, Replay, ReplayId, Scope, Source
from service.domain.reservation import Reason, Reservation, Status
from service.domain.sale import Authority, Sale, SaleRules, SaleStatus
from service.domain.stock import SlotCount
from service.ports.messaging import DeadLetter

NOW_MS = 1_769_860_800_123
SALE = SaleId("drop-1")
ANNA, BEN = BuyerId("anna"), BuyerId("ben")
ANNAS = reservation_id(SALE, ANNA, "k1")
JWT_SECRET = "a secret of thirty-two bytes, or more"
PAYMENT_SECRETS = (b"newer secret", b"older secret")


@dataclass
class FakeClock:
    ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return time.perf_counter()

    def offset_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the API does not sleep")


def a_reservation(id_: ReservationId = ANNAS, buyer: BuyerId = ANNA, **changes: object) -> Reservation:
    facts: dict[str, object] = {
        "id": id_,
        "sale_id": SALE,
        "buyer_id": buyer,
        "quantity": 1,
        "status": Status.QUEUED,
        "amount": 4900,
        "currency": "EUR",
        "created_at_ms": NOW_MS,
    }
    return Reservation(**{**facts, **changes})  # type: ignore[arg-type]


def some_rules(**changes: object) -> SaleRules:
    facts: dict[str, object] = {
        "sku": "SHOE-42",
        "stock": 100,
        "price": 4900,
        "currency": "EUR",
        "limit_per_buyer": 2,
        "payment_window_s": 900,
        "queue_deadline_s": 600,
    }
    return SaleRules(**{**facts, **changes})  # type: ignore[arg-type]


def a_sale(**changes: object) -> Sale:
    facts: dict[str, object] = {
        "id": SALE,
        "rules": some_rules(),
        "status": SaleStatus.OPEN,
        "authority": Authority.REDIS,
        "epoch": 3,
        "epoch_started_at_ms": NOW_MS,
        "initial": 100,
        "adjusted": 0,
        "available": 60,
        "wants_redis": True,
        "sold_in_epoch": True,
        "older_deadline_ms": None,
        "lost": None,
        "lost_at_ms": None,
        "created_at_ms": NOW_MS,
    }
    return Sale(**{**facts, **changes})  # type: ignore[arg-type]


def a_ledger() -> Ledger:
    terms = dict.fromkeys(SqlTerms.__dataclass_fields__, 0)
    sql = SqlTerms(**{**terms, "initial": 100, "available": 60, "paid": 40, "moved": 60, "buyers_units": 40})
    count = SlotCount(granted=100, available=60, held=40, queued=0, ordered=40, buyers_units=40, undelivered_batches=0)
    return Ledger(sale_id=SALE, authority="redis", epoch=3, sql=sql, slots={0: count, 1: None})


@dataclass
class Fake:
    """`error` is raised at the next call; `calls` are the calls so far, each with its arguments."""

    error: Exception | None = None
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def note(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


@dataclass
class FakeReserve(Fake):
    answer: ReserveAnswer = field(default_factory=lambda: ReserveAnswer(reservation=a_reservation(), replayed=False))

    async def reserve(self, request: ReserveRequest, /) -> ReserveAnswer:
        self.note(request)
        return self.answer


@dataclass
class FakeReservations(Fake):
    reservation: Reservation = field(default_factory=a_reservation)

    async def get(self, id: ReservationId, /) -> Reservation:
        self.note("get", id)
        return self.reservation


@dataclass
class FakeEndings(Fake):
    reservation: Reservation = field(default_factory=a_reservation)

    async def cancel(self, id: ReservationId, reason: Reason, /) -> Reservation:
        self.note("cancel", id, reason)
        return self.reservation

    async def refund(self, id: ReservationId, /, *, restock: bool, why: str, actor: str) -> Reservation:
        self.note("refund", id, restock, why, actor)
        return self.reservation

    async def start_payment(self, id: ReservationId, /) -> Reservation:
        self.note("start_payment", id)
        return self.reservation


@dataclass
class FakePayments(Fake):
    outcome: PaymentOutcome = PaymentOutcome.APPLIED

    async def receive(self, payment: Payment, /) -> PaymentOutcome:
        self.note(payment)
        return self.outcome


@dataclass
class FakeSales(Fake):
    sale: Sale = field(default_factory=a_sale)
    stock_level: StockLevel = StockLevel.IN_STOCK

    def _done(self, *call: object) -> Sale:
        self.note(*call)
        return self.sale

    async def create(self, sale_id: SaleId, rules: SaleRules, actor: str, /) -> Sale:
        return self._done("create", sale_id, rules, actor)

    async def get(self, sale_id: SaleId, /) -> Sale:
        return self._done("get", sale_id)

    async def list(self) -> Sequence[Sale]:
        return [self._done("list")]

    async def warm(self, sale_id: SaleId, actor: str, /) -> Sale:
        return self._done("warm", sale_id, actor)

    async def open(self, sale_id: SaleId, /, *, warm: bool, actor: str) -> Sale:
        return self._done("open", sale_id, warm, actor)

    async def close(self, sale_id: SaleId, actor: str, /) -> Sale:
        return self._done("close", sale_id, actor)

    async def settle(self, sale_id: SaleId, actor: str, /) -> Sale:
        return self._done("settle", sale_id, actor)

    async def adjust(self, sale_id: SaleId, adjustment_id: str, delta: int, actor: str, /) -> Sale:
        return self._done("adjust", sale_id, adjustment_id, delta, actor)

    async def change_rules(self, sale_id: SaleId, changes: Mapping[str, object], actor: str, /) -> Sale:
        return self._done("change_rules", sale_id, changes, actor)

    async def public(self, sale_id: SaleId, /) -> PublicSale:
        return PublicSale(sale=self._done("public", sale_id), stock_level=self.stock_level)


@dataclass
class FakeLedgers(Fake):
    async def ledger(self, sale_id: SaleId, /) -> Ledger:
        self.note(sale_id)
        return a_ledger()


REPLAY = ReplayId("rp-0123456789abcdef0123")


def a_replay(scope: Scope, id_: ReplayId | None = None, **changes: object) -> Replay:
    """One item: a batch of Anna, who has her order, and of Ben, who holds nothing."""
    item = Item(
        outcome=Outcome.PLANNED if id_ is None else Outcome.ORDERED,
        why="A reason.",
        batch_id=BatchId("batch-1"),
        sale_id=SALE,
        epoch=3,
        born_at_ms=NOW_MS - 61_500,
        reservations=(
            Now(reservation_id=ANNAS, standing=Status.AWAITING_PAYMENT),
            Now(reservation_id=reservation_id(SALE, BEN, "k1"), standing=Absence.NOTHING),
        ),
    )
    facts: dict[str, object] = {
        "id": id_,
        "scope": scope,
        "why": None if id_ is None else "the API was down",
        "actor": "operator-1",
        "created_at_ms": NOW_MS,
        "more": False,
        "items": (item,),
        "finished_at_ms": None if id_ is None else NOW_MS + 1_000,
    }
    return Replay(**{**facts, **changes})  # type: ignore[arg-type]


@dataclass
class FakeReplays(Fake):
    async def look(self, scope: Scope, /, *, actor: str) -> Replay:
        self.note("look", scope, actor)
        return a_replay(scope)

    async def act(self, scope: Scope, /, *, why: str, actor: str) -> Replay:
        self.note("act", scope, why, actor)
        return a_replay(scope, REPLAY)

    async def get(self, replay_id: ReplayId, /) -> Replay:
        self.note("get", replay_id)
        return a_replay(Scope(source=Source.IN_DOUBT), replay_id)


@dataclass
class FakeBroker(Fake):
    lists: DeadLetters = field(default_factory=lambda: DeadLetters(letters=(a_dead_letter(),), more=False))

    async def numbers(self) -> BrokerNumbers:
        self.note("numbers")
        return BrokerNumbers(halves=7, discarded=None)

    async def dead_letters(self) -> DeadLetters:
        self.note("dead_letters")
        return self.lists


def a_dead_letter() -> DeadLetter:
    return DeadLetter(
        group="dropgate-order-creator",
        topic="dropgate-order",
        message_id="m-1",
        key="batch-1",
        body=b"not a batch of anna's",
        attempts=3,
        why="it cannot be read",
        born_at_ms=NOW_MS - 1_000,
        dead_at_ms=NOW_MS,
    )


@dataclass
class FakeReadiness(Fake):
    lacks: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    async def missing(self) -> Sequence[str]:
        self.note()
        return self.lacks


class FakeKeys:
    """The secret of a role's key is `key-ROLE`, its id `ROLE-1`."""

    def authenticate(self, secret: str, /) -> Principal | None:
        role = secret.removeprefix("key-")
        return Principal(key_id=f"{role}-1", role=Role(role)) if role in set(Role) and role != secret else None


@dataclass
class World:
    """The API over fakes, and a client of it."""

    reserve: FakeReserve = field(default_factory=FakeReserve)
    reservations: FakeReservations = field(default_factory=FakeReservations)
    endings: FakeEndings = field(default_factory=FakeEndings)
    payments: FakePayments = field(default_factory=FakePayments)
    sales: FakeSales = field(default_factory=FakeSales)
    ledgers: FakeLedgers = field(default_factory=FakeLedgers)
    replays: FakeReplays = field(default_factory=FakeReplays)
    broker: FakeBroker = field(default_factory=FakeBroker)
    readiness: FakeReadiness = field(default_factory=FakeReadiness)
    clock: FakeClock = field(default_factory=FakeClock)
    payment_secrets: tuple[bytes, ...] = PAYMENT_SECRETS
    jwt_secret: str | None = JWT_SECRET
    jwt_audience: str | None = None
    metrics_here: bool = True

    def services(self) -> ApiServices:
        return ApiServices(
            reserve=self.reserve,
            reservations=self.reservations,
            endings=self.endings,
            payments=self.payments,
            sales=self.sales,
            ledgers=self.ledgers,
            replays=self.replays,
            broker=self.broker,
            readiness=self.readiness,
            keys=FakeKeys(),
            clock=self.clock,
            payment_secrets=self.payment_secrets,
            payment_tolerance_s=300,
            jwt_secret=self.jwt_secret,
            jwt_audience=self.jwt_audience,
            payment_window_s=900,
            queue_deadline_s=600,
        )

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=create_app(self.services(), metrics_here=self.metrics_here))
        return httpx.AsyncClient(transport=transport, base_url="http://dropgate.test")

    def asked(self) -> list[tuple[object, ...]]:
        """Every call that reached a use case."""
        return [call for fake in (*self._failing(), self.readiness) for call in fake.calls]

    def fail(self, error: Exception | None) -> None:
        """Every use case raises this from now on."""
        for fake in self._failing():
            fake.error = error

    def _failing(self) -> tuple[Fake, ...]:
        return (
            self.reserve,
            self.reservations,
            self.endings,
            self.payments,
            self.sales,
            self.ledgers,
            self.replays,
            self.broker,
        )


def key(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer key-{role}"}


def token(
    subject: object = ANNA, secret: str = JWT_SECRET, algorithm: str = "HS256", **claims: object
) -> dict[str, str]:
    """A buyer's token, as a storefront signs it."""
    payload = {"sub": subject, "exp": int(time.time()) + 86_400, **claims}
    payload = {name: value for name, value in payload.items() if value is not None}
    return {"Authorization": f"Bearer {jwt.encode(payload, secret, algorithm=algorithm)}"}
