"""A COMMIT whose answer does not come: it happened or not, the caller hears that nobody knows, and asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest
from sqlalchemy import func, select

from service.adapters.memory.clock import ManualClock
from service.adapters.sql import tables, transactions
from service.adapters.sql.database import Database, DatabaseOptions
from service.core.payments import PaymentService
from service.domain.errors import StoreUnavailable
from service.domain.ids import PaymentId
from service.domain.order import Order
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus
from service.domain.reservation import Status
from tests.fixtures.mariadb_ways import at, at_commit, killed_at_commit
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.sql import NOW, SALE, Stores, claim, expire, id_of, problems, rules, sale_now, sell, stores_on
from tests.servers.mariadb import MariaDB

pytestmark = [pytest.mark.faults, pytest.mark.slow]

ROUNDS = 100
"""COMMITs in doubt, of each kind."""

T = TypeVar("T")
Fault = Callable[[Database], AbstractContextManager[object]]


@pytest.fixture
def proxy(mariadb: MariaDB, make_proxy: Callable[[str], TcpProxy]) -> TcpProxy:
    return make_proxy(mariadb.address)


@pytest.fixture
async def shaky(mysql_url: str, proxy: TcpProxy) -> Stores:
    """A process whose every word to the database goes through the proxy."""
    return stores_on(at(mysql_url, proxy.address), DatabaseOptions(pool_max=4))


@pytest.fixture(params=["killed by the server", "cut off after it arrived"])
def fault(request: pytest.FixtureRequest, mariadb: MariaDB, proxy: TcpProxy) -> Fault:
    if request.param == "killed by the server":
        return lambda database: killed_at_commit(mariadb, database, seed=52)

    def cut(database: Database) -> AbstractContextManager[object]:
        return at_commit(database, lambda _: proxy.cut_replies(1, of=b"COMMIT"))

    return cut


async def heard(call: Awaitable[T]) -> T | None:
    """None: nobody knows."""
    try:
        return await call
    except StoreUnavailable:
        return None


async def test_an_order_whose_commit_was_ambiguous_is_made_once(shaky: Stores, mysql: Stores, fault: Fault) -> None:
    await mysql.sales.create(SALE, rules(stock=2 * ROUNDS), NOW)
    unknown = 0
    for n in range(ROUNDS):
        with fault(shaky.database):
            answer = await heard(sell(shaky, [claim(f"b{n}")]))
        unknown += answer is None
        there = await mysql.orders.order(id_of(f"b{n}"))
        assert answer is None or there is not None, "what was answered is there"
        again = await sell(shaky, [claim(f"b{n}")])
        assert len(again.existing if there else again.accepted) == 1, "reading says what became of it"
    assert unknown > ROUNDS // 10
    await _exact(mysql, orders=ROUNDS, live=ROUNDS)
    await shaky.database.close()


async def test_pay_and_cancel_whose_commits_were_ambiguous_end_each_order_once(
    shaky: Stores, mysql: Stores, fault: Fault
) -> None:
    """Each is repeated until it is answered, as a payment provider and the expiry sweep do."""
    rounds = ROUNDS // 2
    await mysql.sales.create(SALE, rules(stock=rounds), NOW)
    orders = (await sell(mysql, [claim(f"b{n}") for n in range(rounds)])).accepted
    payments = PaymentService(shaky.orders, ManualClock())
    for order in orders:
        with fault(shaky.database):
            await asyncio.gather(heard(payments.receive(_money_for(order))), heard(expire(shaky, order)))
        outcome = await payments.receive(_money_for(order))
        await expire(shaky, order)
        row = await mysql.orders.order(order.id)
        assert row is not None
        assert (row.status, outcome) in {
            (Status.PAID, PaymentOutcome.APPLIED),
            (Status.CANCELLED, PaymentOutcome.REFUND_REQUIRED),
        }
    terms = await mysql.orders.terms(SALE)
    assert terms.payments_succeeded == terms.payments_applied + terms.refunds == rounds
    await _exact(mysql, orders=rounds, live=terms.paid)
    await shaky.database.close()


def _money_for(order: Order) -> Payment:
    return Payment(
        id=PaymentId(f"pay-{order.id}"),
        reservation_id=order.id,
        status=PaymentStatus.SUCCEEDED,
        amount=order.amount,
        currency=order.currency,
    )


async def _exact(stores: Stores, *, orders: int, live: int) -> None:
    sale, terms = await sale_now(stores), await stores.orders.terms(SALE)
    made = await transactions.read_rows(stores.database, select(func.count()).select_from(tables.orders))
    assert made[0][0] == orders
    assert sale.available == sale.initial - live == terms.moved
    assert terms.buyers_units == live
    assert await problems(stores) == ()
