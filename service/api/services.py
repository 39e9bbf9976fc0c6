"""What the API needs of the core: one Protocol a use case, so that a test can stand in for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.core.broker_look import BrokerNumbers, DeadLetters
from service.core.keys import Principal
from service.core.reserve import ReserveAnswer, ReserveRequest
from service.core.sales import PublicSale
from service.domain.ids import ReservationId, SaleId
from service.domain.ledger import Ledger
from service.domain.payment import Payment, PaymentOutcome
from service.domain.replay import Replay, ReplayId, Scope
from service.domain.reservation import Reason, Reservation
from service.domain.sale import Sale, SaleRules
from service.ports.clock import Clock


class Reserving(Protocol):
    async def reserve(self, request: ReserveRequest, /) -> ReserveAnswer: ...


class ReadingReservations(Protocol):
    async def get(self, id: ReservationId, /) -> Reservation: ...


class Ending(Protocol):
    async def cancel(self, id: ReservationId, reason: Reason, /) -> Reservation: ...

    async def refund(self, id: ReservationId, /, *, restock: bool, why: str, actor: str) -> Reservation: ...

    async def start_payment(self, id: ReservationId, /) -> Reservation: ...


class ReceivingPayments(Protocol):
    async def receive(self, payment: Payment, /) -> PaymentOutcome: ...


class ManagingSales(Protocol):
    async def create(self, sale_id: SaleId, rules: SaleRules, actor: str, /) -> Sale: ...

    async def get(self, sale_id: SaleId, /) -> Sale: ...

    async def list(self) -> Sequence[Sale]: ...

    async def warm(self, sale_id: SaleId, actor: str, /) -> Sale: ...

    async def open(self, sale_id: SaleId, /, *, warm: bool, actor: str) -> Sale: ...

    async def close(self, sale_id: SaleId, actor: str, /) -> Sale: ...

    async def settle(self, sale_id: SaleId, actor: str, /) -> Sale: ...

    async def adjust(self, sale_id: SaleId, adjustment_id: str, delta: int, actor: str, /) -> Sale: ...

    async def change_rules(self, sale_id: SaleId, changes: Mapping[str, object], actor: str, /) -> Sale:
        """`changes` has names of SaleRules' fields."""

    async def public(self, sale_id: SaleId, /) -> PublicSale: ...


class ReadingLedgers(Protocol):
    async def ledger(self, sale_id: SaleId, /) -> Ledger: ...


class Replaying(Protocol):
    async def look(self, scope: Scope, /, *, actor: str) -> Replay: ...

    async def act(self, scope: Scope, /, *, why: str, actor: str) -> Replay: ...

    async def get(self, replay_id: ReplayId, /) -> Replay: ...


class LookingAtTheBroker(Protocol):
    async def numbers(self) -> BrokerNumbers: ...

    async def dead_letters(self) -> DeadLetters: ...


class BeingReady(Protocol):
    @property
    def advice(self) -> Sequence[str]: ...

    async def missing(self) -> Sequence[str]: ...


class KnowingKeys(Protocol):
    def authenticate(self, secret: str, /) -> Principal | None: ...


@dataclass(frozen=True, kw_only=True)
class ApiServices:
    """All that a request can reach. The secrets are what settings say; the windows are a sale's where it names none."""

    reserve: Reserving
    reservations: ReadingReservations
    endings: Ending
    payments: ReceivingPayments
    sales: ManagingSales
    ledgers: ReadingLedgers
    replays: Replaying
    broker: LookingAtTheBroker
    readiness: BeingReady
    keys: KnowingKeys
    clock: Clock
    payment_secrets: tuple[bytes, ...]
    payment_tolerance_s: int
    jwt_secret: str | None
    jwt_audience: str | None
    payment_window_s: int
    queue_deadline_s: int
