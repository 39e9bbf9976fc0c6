"""Conditional UPDATEs decide the same race the same way, whether the server counts rows found or rows changed.

SQLAlchemy asks for rows found. A proxy in between may have connections of its own to the server, without that flag (F52
e): so every UPDATE whose count decides something changes its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.dialects.mysql.aiomysql import MySQLDialect_aiomysql
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import transactions
from service.adapters.sql.database import Database
from service.domain.errors import InvariantBroken
from service.domain.ids import BuyerId, PaymentId
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus
from service.domain.reservation import Status
from service.domain.sale import Authority, SaleStatus, ServerIds
from service.ports.orders import LEADER_LEASE, SaleTransaction, StockMovement, StoredPayment
from tests.fixtures.sql import (
    LEADER,
    NOW,
    SALE,
    Stores,
    claim,
    drive,
    expire,
    id_of,
    pay,
    problems,
    rules,
    sale_now,
    sell,
    sold,
    stores_on,
)

ROUNDS = 60
Pair = tuple[Stores, Stores]


@pytest.fixture(params=["found", "changed"])
async def pair(request: pytest.FixtureRequest, mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """Two processes whose server counts rows found, or rows changed; and a sale."""
    if request.param == "changed":
        monkeypatch.setattr(MySQLDialect_aiomysql, "_found_rows_client_flag", lambda _: 0)
    first, second = stores_on(mysql_url), stores_on(mysql_url)
    assert await _counted_by_an_update_that_changes_nothing(first.database) == (request.param == "found")
    await first.sales.create(SALE, rules(stock=ROUNDS), NOW)
    yield first, second
    await first.database.close()
    await second.database.close()


async def _counted_by_an_update_that_changes_nothing(database: Database) -> int:
    async def work(connection: AsyncConnection) -> int:
        return (await connection.execute(text("UPDATE alembic_version SET version_num = version_num"))).rowcount

    return await transactions.write(database, work)


async def test_pay_against_cancel_has_one_winner(pair: Pair) -> None:
    orders = (await sell(pair[0], [claim(f"b{n}") for n in range(ROUNDS)])).accepted
    for n, order in enumerate(orders):
        acts = [pay(pair[0], order), expire(pair[1], order)]
        outcomes = await asyncio.gather(*(acts if n % 2 else reversed(acts)))
        assert sorted(outcomes) == [False, True]
        assert not await expire(pair[n % 2], order), "over is over"
    terms = await pair[0].orders.terms(SALE)
    assert terms.paid + terms.available == ROUNDS
    assert terms.refunds == terms.payments_succeeded - terms.paid == ROUNDS - terms.paid
    assert await problems(pair[0]) == ()


async def test_an_order_replaced_by_itself_is_no_lost_race_and_one_that_moved_on_is(pair: Pair) -> None:
    order = await sold(pair[0], "anna")

    async def again(transaction: SaleTransaction) -> list[bool]:
        return [await transaction.replace_order(order, expected=it) for it in (order.status, order.status, Status.PAID)]

    assert await pair[0].orders.transact([], again) == [True, True, False]


async def test_counters_and_stock_stay_within_their_bounds(pair: Pair) -> None:
    many = {BuyerId(f"b{n}"): 1 for n in range(20)}

    async def once(transaction: SaleTransaction) -> None:
        await transaction.add_buyer_units(SALE, many, 1)

    async def beyond(transaction: SaleTransaction) -> None:
        await transaction.add_buyer_units(SALE, {BuyerId("b7"): 1, BuyerId("new"): 1}, 1)

    async def too_much(transaction: SaleTransaction) -> None:
        taken = StockMovement(key="a", sale_id=SALE, kind="adjust", delta=-ROUNDS - 1, at_ms=NOW)
        await transaction.move_stock([taken])

    await pair[0].orders.transact([SALE], once)
    for refused in (beyond, too_much):
        with pytest.raises(InvariantBroken):
            await pair[1].orders.transact([SALE], refused)
    assert (await pair[0].orders.terms(SALE)).buyers_units == 20
    assert (await sale_now(pair[0])).available == ROUNDS


async def test_the_lease_has_one_owner(pair: Pair) -> None:
    for at_ms in (NOW, NOW, NOW + 999):
        wanted = [pair[n % 2].sales.acquire_lease(LEADER_LEASE, f"keeper-{n % 2}", at_ms, 1_000) for n in range(6)]
        got = await asyncio.gather(*wanted)
        assert set(got[::2]) != set(got[1::2]), "all of one owner, and none of the other"


async def test_a_change_of_authority_has_one_winner(pair: Pair) -> None:
    await drive(pair[0])
    changes = [
        pair[n % 2].sales.change_authority(
            SALE, leader=LEADER, expected=(Authority.SQL, 1), to=Authority.LOADING, now_ms=NOW
        )
        for n in range(6)
    ]
    assert sum(changed is not None for changed in await asyncio.gather(*changes)) == 1
    assert (await sale_now(pair[0])).epoch == 2


async def test_a_loss_is_reported_once_and_a_status_changes_from_what_was_seen(pair: Pair) -> None:
    await drive(pair[0], Authority.LOADING, Authority.REDIS)
    found = ServerIds(run_id="r", replid="p")
    assert [await pair[n % 2].sales.report_lost(SALE, 2, found, NOW) for n in range(4)] == [True, False, False, False]
    set_status = pair[0].sales.set_status
    assert await set_status(SALE, SaleStatus.DRAFT, SaleStatus.DRAFT, NOW)
    assert not await set_status(SALE, SaleStatus.OPEN, SaleStatus.OPEN, NOW)


async def test_a_payment_resolved_as_it_is_already_is_no_missing_payment(pair: Pair) -> None:
    payment = Payment(
        id=PaymentId("pay-1"), reservation_id=id_of("anna"), status=PaymentStatus.SUCCEEDED, amount=1, currency="EUR"
    )
    stored = StoredPayment(payment=payment, outcome=PaymentOutcome.WAITING, received_at_ms=NOW)

    async def store(transaction: SaleTransaction) -> None:
        await transaction.insert_payment(stored)

    async def resolve(transaction: SaleTransaction) -> None:
        await transaction.resolve_payment(payment.id, PaymentOutcome.REFUND_REQUIRED, NOW)

    async def another(transaction: SaleTransaction) -> None:
        await transaction.resolve_payment(PaymentId("pay-2"), PaymentOutcome.REFUND_REQUIRED, NOW)

    for work in (store, resolve, resolve):
        await pair[0].orders.transact([], work)
    with pytest.raises(InvariantBroken):
        await pair[0].orders.transact([], another)
    assert replace(stored, outcome=PaymentOutcome.REFUND_REQUIRED) == await _payment(pair[0], payment.id)


async def _payment(stores: Stores, id_: PaymentId) -> StoredPayment | None:
    async def work(transaction: SaleTransaction) -> StoredPayment | None:
        return await transaction.payment(id_)

    return await stores.orders.transact([], work)
