"""The order transaction under everything that can come between, in any order: the ledger balances after each step.

Rules are what the core does: candidates of batches arrive once or again, together or alone; buyers pay, cancel and get
refunds; the authority moves in mid-flight; a transaction fails before its COMMIT. Hypothesis prints the steps of
a failure.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection

from service.domain.errors import EpochChanged, InvariantBroken
from service.domain.order import Claim, Decision, Order, cancel
from service.domain.payment import (
    KeepWaiting,
    Payment,
    PaymentOutcome,
    PaymentStatus,
    PayOrder,
    RefundPayment,
    decide_payment,
)
from service.domain.reservation import FINAL, Reason, Status
from service.domain.sale import Authority
from service.domain.stock import RecordState
from service.ports.orders import SaleTransaction, StoredPayment
from tests.fixtures.sql import (
    NOW,
    SALE,
    claim,
    decide,
    drive,
    give_back,
    id_of,
    problems,
    rules,
    sale_now,
    sell,
    stores_on,
)

STOCK, LIMIT = 5, 2
BUYERS = st.sampled_from(["anna", "bert", "carl", "dora"])
CANDIDATES = st.lists(st.tuples(BUYERS, st.integers(0, 3), st.integers(1, 2), st.booleans()), min_size=1, max_size=6)
NEXT = {
    Authority.SQL: Authority.LOADING,
    Authority.LOADING: Authority.REDIS,
    Authority.REDIS: Authority.SQL,
}

T = TypeVar("T")


class OrderTransactionMachine(RuleBasedStateMachine):
    """One sale, one SQLite file, two processes."""

    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        url = f"sqlite:///{shutil.copy(self.template, Path(self.folder.name) / 'orders.db')}"
        self.stores, self.rival = stores_on(url), stores_on(url)
        for stores in (self.stores, self.rival):
            for engine in stores.database.engines.values():
                event.listen(engine.sync_engine, "connect", _without_flushing)
        self.ended: list[Order] = []
        self.payments = 0
        self.keys: dict[tuple[str, int], Claim] = {}

    def teardown(self) -> None:
        self.run(self.stores.database.close())
        self.run(self.rival.database.close())
        self.loop.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def a_sale(self) -> None:
        self.run(self.stores.sales.create(SALE, rules(stock=STOCK, limit=LIMIT), NOW))

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(candidates=CANDIDATES)
    def candidates_arrive(self, candidates: list[tuple[str, int, int, bool]]) -> None:
        decision = self.run(sell(self.stores, self.claims(candidates)))
        assert sum(order.quantity for order in decision.accepted) <= STOCK

    @rule(candidates=CANDIDATES)
    def the_same_candidates_arrive_at_two_processes(self, candidates: list[tuple[str, int, int, bool]]) -> None:
        claims = self.claims(candidates)

        async def both() -> tuple[Decision, Decision]:
            return await asyncio.gather(sell(self.stores, claims), sell(self.rival, claims))

        first, second = self.run(both())
        assert not {it.id for it in first.accepted} & {it.id for it in second.accepted}

    @rule(candidates=CANDIDATES)
    def work_fails_before_its_commit(self, candidates: list[tuple[str, int, int, bool]]) -> None:
        claims = self.claims(candidates)

        async def work(transaction: SaleTransaction) -> None:
            await decide(transaction, claims)
            raise InvariantBroken("test")

        with pytest.raises(InvariantBroken):
            self.run(self.stores.orders.transact([SALE], work))

    @rule(candidates=CANDIDATES)
    def the_epoch_changes_in_mid_flight(self, candidates: list[tuple[str, int, int, bool]]) -> None:
        seen = self.run(sale_now(self.stores))
        self.the_authority_moves()
        claims = self.claims(candidates)

        async def work(transaction: SaleTransaction) -> None:
            locked = transaction.sales[SALE]
            if (locked.authority, locked.epoch) != (seen.authority, seen.epoch):
                raise EpochChanged(SALE, seen.epoch, locked.epoch)
            await decide(transaction, claims)

        with pytest.raises(EpochChanged):
            self.run(self.stores.orders.transact([SALE], work))

    @rule()
    def the_authority_moves(self) -> None:
        sale = self.run(sale_now(self.stores))
        arrived = self.run(drive(self.rival, NEXT[sale.authority]))
        if arrived.authority is Authority.LOADING:
            snapshot = self.run(self.rival.sales.snapshot(SALE, arrived.epoch))
            assert snapshot is not None
            held = [record for record in snapshot.records if record.state is RecordState.ORDERED]
            assert snapshot.available + sum(record.quantity for record in held) == STOCK

    @rule(buyer=BUYERS, key=st.integers(0, 3))
    def an_order_is_cancelled(self, buyer: str, key: int) -> None:
        self.run(self.stores.orders.transact([SALE], self.cancelling(buyer, key)))

    @rule(buyer=BUYERS, key=st.integers(0, 3), right=st.booleans())
    def a_payment_comes(self, buyer: str, key: int, right: bool) -> None:
        self.run(self.stores.orders.transact([], self.paying(buyer, key, right=right)))

    @rule(buyer=BUYERS, key=st.integers(0, 3))
    def pay_and_cancel_meet(self, buyer: str, key: int) -> None:
        pay, end = self.paying(buyer, key, right=True), self.cancelling(buyer, key)

        async def both() -> None:
            await asyncio.gather(self.stores.orders.transact([], pay), self.rival.orders.transact([SALE], end))

        self.run(both())

    @rule(buyer=BUYERS, key=st.integers(0, 3), restock=st.booleans())
    def an_order_is_refunded(self, buyer: str, key: int, restock: bool) -> None:
        async def work(transaction: SaleTransaction) -> None:
            order = await _order(transaction, buyer, key)
            if order is None or order.status is not Status.PAID:
                return
            refunded = replace(order, status=Status.REFUNDED, reason=Reason.PAYMENT_REFUNDED, restocked=restock)
            assert await transaction.replace_order(refunded, expected=Status.PAID)
            if restock:
                await give_back(transaction, order, "refund")

        self.run(self.stores.orders.transact([SALE], work))

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_ledger_balances(self) -> None:
        if self.run(self.stores.sales.sale(SALE)) is not None:
            assert self.run(problems(self.stores)) == ()

    @invariant()
    def every_buyer_keeps_to_the_limit_and_what_ended_stays_as_it_was(self) -> None:
        ids = [known.candidate.reservation_id for known in self.keys.values()]
        found = self.run(self.rival.orders.orders(ids))
        live: dict[str, int] = {}
        for order in found.values():
            live[order.buyer_id] = live.get(order.buyer_id, 0) + order.quantity * order.is_live
        assert max(live.values(), default=0) <= LIMIT
        assert [found[before.id] for before in self.ended] == self.ended
        self.ended = [order for order in found.values() if order.status in FINAL]

    # --- pieces -------------------------------------------------------------------------------------------------------

    def claims(self, candidates: list[tuple[str, int, int, bool]]) -> list[Claim]:
        """A key keeps its quantity, as its fingerprint would demand."""
        claims = []
        for buyer, key, quantity, late in candidates:
            first = claim(buyer, key=str(key), quantity=quantity, holds_redis=True)
            known = self.keys.setdefault((buyer, key), first)
            claims.append(replace(known, deadline_ms=NOW if late else None))
        return claims

    def cancelling(self, buyer: str, key: int):
        async def work(transaction: SaleTransaction) -> None:
            order = await _order(transaction, buyer, key)
            ended = None if order is None else cancel(order, Reason.BUYER_CANCELLED)
            if order is None or not isinstance(ended, Order):
                return
            if await transaction.replace_order(ended, expected=Status.AWAITING_PAYMENT):
                await give_back(transaction, order, "cancel")

        return work

    def paying(self, buyer: str, key: int, *, right: bool):
        self.payments += 1
        payment = Payment(
            id=f"pay-{self.payments}",  # type: ignore[arg-type]
            reservation_id=id_of(buyer, str(key)),
            status=PaymentStatus.SUCCEEDED,
            amount=4_990 * (self.quantity(buyer, key) if right else 7),
            currency="EUR",
        )

        async def work(transaction: SaleTransaction) -> None:
            stored = StoredPayment(payment=payment, outcome=PaymentOutcome.WAITING, received_at_ms=NOW)
            await transaction.insert_payment(stored)
            order = await _order(transaction, buyer, key)
            match decide_payment(payment, order, may_yet_appear=True):
                case PayOrder():
                    assert order is not None
                    paid = replace(order, status=Status.PAID, paid_by=payment.id)
                    assert await transaction.replace_order(paid, expected=Status.AWAITING_PAYMENT)
                    await transaction.resolve_payment(payment.id, PaymentOutcome.APPLIED, NOW)
                case RefundPayment(reason=reason):
                    await transaction.insert_refund(payment, reason, NOW)
                    await transaction.resolve_payment(payment.id, PaymentOutcome.REFUND_REQUIRED, NOW)
                case KeepWaiting():
                    pass

        return work

    def quantity(self, buyer: str, key: int) -> int:
        known = self.keys.get((buyer, key))
        return 1 if known is None else known.candidate.quantity


def _without_flushing(connection: DBAPIConnection, _record: object) -> None:
    """This test is about decisions, not about power cuts."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()


async def _order(transaction: SaleTransaction, buyer: str, key: int) -> Order | None:
    id_ = id_of(buyer, str(key))
    return (await transaction.orders([id_])).get(id_)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_ledger_balances_whatever_comes_in_whatever_order(migrated_sqlite: Path) -> None:
    OrderTransactionMachine.template = migrated_sqlite
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    limits = settings(max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(OrderTransactionMachine, settings=limits)
