"""Adapters to use cases: core, wired once a process."""

from __future__ import annotations

import os
import secrets
import socket

from consumers.keeper import KeeperLoop
from service.api.services import ApiServices
from service.bootstrap.adapters import Adapters
from service.bootstrap.replays import replay_service
from service.core.adjusting import FINISH_A_TURN, Adjusting
from service.core.after_commit import AfterCommit
from service.core.attempt import AttemptTools
from service.core.authority import AuthorityRoad
from service.core.batching import BatchLimits
from service.core.broker_look import BrokerLook
from service.core.check_back import CheckBacks
from service.core.claims import ClaimsFinder
from service.core.direct import DirectSelling
from service.core.directory import REFRESH_S, SaleDirectory
from service.core.drain import Drain
from service.core.ending import EndingService
from service.core.keys import KeyService
from service.core.leadership import Leadership
from service.core.ledger import LedgerService
from service.core.load import Loader
from service.core.order_intake import OrderIntake
from service.core.order_transaction import OrderTransaction
from service.core.payments import PaymentService
from service.core.readiness import Readiness
from service.core.registration import RegisteredProducer
from service.core.release import Releases
from service.core.reservations import ReservationReader
from service.core.reserve import ReserveService
from service.core.retention import INTERVAL_S as RETENTION_INTERVAL_S
from service.core.retention import ROWS_A_TURN, RetentionSweep
from service.core.sales import SaleService
from service.core.sweeps import (
    BATCHES_A_TURN,
    DISCARDED_A_TURN,
    ORDERS_A_TURN,
    OWED_A_TURN,
    PAYMENTS_A_TURN,
    DiscardedSweep,
    ExpirySweep,
    OwedSweep,
    UndeliveredSweep,
    WaitingPaymentsSweep,
)
from service.core.timeouts import PaymentTimeouts
from service.core.topics import Topics
from service.core.unlinking import EPOCHS_A_TURN, UnlinkSweep
from service.settings import Settings


class UseCases:
    """Core over these adapters. One of each, shared by the parts of a process."""

    def __init__(self, settings: Settings, adapters: Adapters) -> None:
        clock, orders, sales, stock = adapters.clock, adapters.orders, adapters.sales, adapters.stock
        self.adapters = adapters
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.topics = Topics.named(settings.topic_prefix)
        self.directory = SaleDirectory(sales, clock)
        self.keys = KeyService(sales, clock)
        self.checks = CheckBacks(self.directory, stock, orders, clock, older_epoch_grace_s=settings.older_epoch_grace_s)
        self.producer = RegisteredProducer(adapters.transport, self.topics.order.name, self.checks.answer)
        self.timeouts = PaymentTimeouts(adapters.transport.publisher(), self.topics.payment_timeout.name)
        self.releases = Releases(self.directory, stock, orders)
        self.reader = ReservationReader(
            self.directory, stock, orders, clock, margin_ms=int(settings.not_found_margin_s * 1000)
        )
        self.endings = EndingService(self.directory, self.reader, orders, self.releases, clock)
        self.payments = PaymentService(orders, clock)
        self.adjusting = Adjusting(self.directory, stock, orders, clock)
        self.sales = SaleService(
            sales=sales,
            orders=orders,
            directory=self.directory,
            stock=stock,
            adjusting=self.adjusting,
            clock=clock,
        )
        self.ledgers = LedgerService(
            self.directory, sales, orders, stock, clock, in_doubt_max_s=settings.in_doubt_max_s
        )
        self.readiness = Readiness(
            directory=self.directory,
            sales=sales,
            stock=stock,
            transport=adapters.transport,
            topics=self.topics.all(),
            producer=self.producer,
            clock=clock,
        )
        self.intake = OrderIntake(
            directory=self.directory,
            claims=ClaimsFinder(self.directory, stock, orders),
            transaction=OrderTransaction(orders, clock),
            after_commit=AfterCommit(directory=self.directory, stock=stock, orders=orders, timeouts=self.timeouts),
            clock=clock,
        )
        self.replays = replay_service(
            adapters,
            self.directory,
            self.intake,
            group=self.topics.order.group or "",
            margin_ms=self.reader.margin_ms,
        )
        self.broker = BrokerLook(adapters.transport, self.topics)
        self.reserve = self._reserve(settings)

    def _reserve(self, settings: Settings) -> ReserveService:
        tools = AttemptTools(
            directory=self.directory,
            stock=self.adapters.stock,
            orders=self.adapters.orders,
            producer=self.producer,
            clock=self.adapters.clock,
            topic=self.topics.order.name,
        )
        limits = BatchLimits(
            batch_max=settings.batch_max,
            lanes=settings.lanes,
            queue_max=settings.queue_max,
            queue_age_max_s=settings.queue_age_max_s,
            reply_timeout_s=settings.reply_timeout_s,
        )
        direct = DirectSelling(self.adapters.orders, self.timeouts, self.adapters.clock)
        return ReserveService(tools, direct, limits, self.readiness)

    def api(self, settings: Settings) -> ApiServices:
        return ApiServices(
            reserve=self.reserve,
            reservations=self.reader,
            endings=self.endings,
            payments=self.payments,
            sales=self.sales,
            ledgers=self.ledgers,
            replays=self.replays,
            broker=self.broker,
            readiness=self.readiness,
            keys=self.keys,
            clock=self.adapters.clock,
            payment_secrets=tuple(secret.get_secret_value().encode() for secret in settings.payment_secrets),
            payment_tolerance_s=settings.payment_tolerance_s,
            jwt_secret=None if settings.jwt_secret is None else settings.jwt_secret.get_secret_value(),
            jwt_audience=settings.jwt_audience,
            payment_window_s=settings.payment_window_s,
            queue_deadline_s=settings.queue_deadline_s,
        )

    async def refresh(self) -> None:
        """This process's view: sale rows and keys."""
        await self.directory.refresh()
        await self.keys.refresh()

    def keeper_loops(self, settings: Settings) -> list[KeeperLoop]:
        """Design §3.8, in the order in which one who reads the metrics would look."""
        orders, clock, interval_s = self.adapters.orders, self.adapters.clock, settings.sweep_interval_s
        undelivered = UndeliveredSweep(
            directory=self.directory,
            stock=self.adapters.stock,
            intake=self.intake,
            clock=clock,
            after_s=settings.sweep_after_s,
        )
        waiting = WaitingPaymentsSweep(
            directory=self.directory, orders=orders, payments=self.payments, reader=self.reader, clock=clock
        )
        expiry, owed = ExpirySweep(orders, self.endings, clock), OwedSweep(orders, self.releases, clock)
        discarded = DiscardedSweep(self.adapters.transport, self.checks, self.intake)
        unlink = UnlinkSweep(self.adapters.sales, self.adapters.stock, clock)
        retention = RetentionSweep(self.adapters.retention, clock, days=settings.retention_days)
        road = self._road(settings)
        return [
            KeeperLoop(name="authority", turn=road.turn, interval_s=min(REFRESH_S, interval_s), close=road.close),
            KeeperLoop(name="expiry", turn=expiry.turn, interval_s=interval_s, full=ORDERS_A_TURN),
            KeeperLoop(name="owed", turn=owed.turn, interval_s=interval_s, full=OWED_A_TURN),
            KeeperLoop(name="undelivered", turn=undelivered.turn, interval_s=interval_s, full=BATCHES_A_TURN),
            KeeperLoop(name="discarded", turn=discarded.turn, interval_s=interval_s, full=DISCARDED_A_TURN),
            KeeperLoop(name="payments", turn=waiting.turn, interval_s=interval_s, full=PAYMENTS_A_TURN),
            KeeperLoop(name="adjustments", turn=self.adjusting.turn, interval_s=interval_s, full=FINISH_A_TURN),
            KeeperLoop(name="unlink", turn=unlink.turn, interval_s=interval_s, full=EPOCHS_A_TURN),
            KeeperLoop(name="retention", turn=retention.turn, interval_s=RETENTION_INTERVAL_S, full=ROWS_A_TURN),
        ]

    def _road(self, settings: Settings) -> AuthorityRoad:
        sales, stock, clock = self.adapters.sales, self.adapters.stock, self.adapters.clock
        return AuthorityRoad(
            sales=sales,
            stock=stock,
            loader=Loader(sales, stock, clock),
            drain=Drain(self.adapters.transport, self.topics.order, clock, timeout_s=settings.drain_timeout_s),
            clock=clock,
            leader=self.owner,
        )

    def leadership(self, name: str | None = None) -> Leadership:
        sales, clock = self.adapters.sales, self.adapters.clock
        return Leadership(sales, clock, self.owner) if name is None else Leadership(sales, clock, self.owner, name=name)
