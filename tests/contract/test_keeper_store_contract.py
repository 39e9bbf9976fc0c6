"""What the stores promise to the keeper: what is owed to ended epochs, who waits behind whom, what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import sale_store, tables, transactions
from service.adapters.sql.retention import SqlRetention
from service.adapters.sql.rows import values_of_order
from service.domain.errors import Conflict
from service.domain.event import event_of_order
from service.domain.ids import BatchId, PaymentId, ReservationId, SaleId
from service.domain.order import Owed
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus
from service.domain.sale import Authority, SaleStatus
from service.domain.stock import Effect, Slot
from service.ports.orders import OwedUnlink, SaleTransaction, StoredPayment
from tests.fixtures.sql import NOW, SALE, Stores, claim, drive, id_of, rules, sell, sold

OTHER = SaleId("sneaker-02")
LATER = NOW + 10_000_000
DAY_MS = 86_400_000
HOME = (Authority.LOADING, Authority.REDIS)


@pytest.fixture(autouse=True)
async def _sales(stores: Stores) -> None:
    for sale_id in (SALE, OTHER):
        await stores.sales.create(sale_id, rules(segments=2), NOW)


# --- the keys of ended epochs -----------------------------------------------------------------------------------------


async def test_each_epoch_that_redis_may_hold_is_owed_an_unlink_from_its_end_on(stores: Stores) -> None:
    """A failed load, a load given up, an authority left: with the segments that each had."""
    await drive(stores, Authority.LOADING, Authority.LOADING, Authority.SQL)
    await stores.sales.change_rules(SALE, lambda _: rules(segments=5), NOW)
    await drive(stores, *HOME, Authority.SQL)
    owed = await stores.sales.owed_unlinks(NOW, 9)
    assert [(it.epoch, it.segments, it.due_at_ms) for it in owed] == [(2, 2, NOW), (3, 2, NOW), (5, 5, NOW)]
    assert await stores.sales.owed_unlinks(NOW - 1, 9) == []
    assert await stores.sales.owed_unlinks(NOW, 1) == owed[:1]


async def test_an_unlink_is_over_or_comes_again_as_its_sweep_says(stores: Stores) -> None:
    (owed,) = await _one_owed(stores)
    await stores.sales.unlinked(owed, NOW + 60)
    assert await stores.sales.owed_unlinks(NOW + 59, 9) == []
    (again,) = await stores.sales.owed_unlinks(NOW + 60, 9)
    await stores.sales.unlinked(again, None)
    assert await stores.sales.owed_unlinks(LATER, 9) == []


async def test_an_unlink_that_was_owed_anew_meanwhile_stays_owed(stores: Stores) -> None:
    (owed,) = await _one_owed(stores)
    await stores.sales.unlinked(owed, NOW + 60)
    (seen,) = await stores.sales.owed_unlinks(NOW + 60, 9)
    await stores.sales.owe_unlink(SALE, seen.epoch, NOW + 90)
    await stores.sales.unlinked(seen, None)
    assert [it.due_at_ms for it in await stores.sales.owed_unlinks(LATER, 9)] == [NOW + 90]


async def test_an_unlink_is_owed_anew_unless_its_first_look_is_due_or_the_epoch_lives(stores: Stores) -> None:
    (owed,) = await _one_owed(stores)
    await stores.sales.owe_unlink(SALE, owed.epoch, NOW + 70)
    assert await stores.sales.owed_unlinks(LATER, 9) == [owed]
    await stores.sales.unlinked(owed, None)
    await stores.sales.owe_unlink(SALE, owed.epoch, NOW + 70)
    assert [it.due_at_ms for it in await stores.sales.owed_unlinks(LATER, 9)] == [NOW + 70]
    living = await drive(stores, Authority.LOADING)
    await stores.sales.owe_unlink(SALE, living.epoch, NOW)
    assert len(await stores.sales.owed_unlinks(LATER, 9)) == 1


# --- nobody stands before the others ----------------------------------------------------------------------------------


async def test_expired_orders_of_a_sale_in_trouble_can_be_left_out(stores: Stores) -> None:
    await sold(stores, "anna")
    await sell(stores, [claim("bert", sale_id=OTHER)], NOW + 5, sale_id=OTHER)
    assert [it.sale_id for it in await stores.orders.expired(LATER, 1)] == [SALE]
    assert [it.sale_id for it in await stores.orders.expired(LATER, 1, besides=[SALE])] == [OTHER]
    assert await stores.orders.expired(LATER, 9, besides=[SALE, OTHER]) == []


async def test_effects_owed_to_a_slot_in_trouble_can_be_left_out(stores: Stores) -> None:
    sale = await drive(stores, *HOME)
    await drive(stores, *HOME, sale_id=OTHER)
    owed = [_owed("a", 0), _owed("b", 1), replace(_owed("c", 0), sale_id=OTHER)]

    async def owe(transaction: SaleTransaction) -> None:
        await transaction.owe(owed)

    await stores.orders.transact([SALE, OTHER], owe)
    slot = Slot(sale_id=SALE, segment=0, epoch=sale.epoch)
    assert len(await stores.orders.owed(1)) == 1
    assert set(await stores.orders.owed(9, besides=[slot])) == set(owed[1:])
    assert await stores.orders.owed(9, besides=[slot, replace(slot, segment=1)]) == owed[2:]
    assert set(await stores.orders.owed(9, besides=[replace(slot, epoch=1)])) == set(owed)


async def test_a_payment_whose_order_is_there_waits_behind_nobody(stores: Stores) -> None:
    early = [await _pay(stores, id_of(f"nobody-{n}"), NOW + n) for n in range(3)]
    order = await sold(stores, "anna")
    paid = await _pay(stores, order.id, NOW + 9)
    assert await stores.orders.payments_with_order(1) == [paid]
    assert await stores.orders.overdue_payments(NOW + 599_999, 9) == []
    assert await stores.orders.overdue_payments(NOW + 600_001, 9) == early[:2]
    assert await stores.orders.overdue_payments(LATER, 1) == early[:1]


async def test_a_payment_for_a_sale_that_is_not_there_is_overdue_at_once(stores: Stores) -> None:
    stray = await _pay(stores, ReservationId("gone.aaaaaaaa"), NOW)
    assert await stores.orders.overdue_payments(NOW - 1, 9) == [stray]


# --- how many sales ---------------------------------------------------------------------------------------------------


async def test_one_sale_too_many_is_refused_and_settling_one_makes_room(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sale_store, "SALES_MAX", 2)
    with pytest.raises(Conflict) as refused:
        await stores.sales.create(SaleId("third"), rules(), NOW)
    assert refused.value.conflict == "too_many_sales"
    assert await stores.sales.sale(SaleId("third")) is None
    assert (await stores.sales.create(SALE, rules(segments=2), NOW)).id == SALE, "the same again is the same"
    await stores.sales.set_status(OTHER, SaleStatus.DRAFT, SaleStatus.SETTLED, NOW)
    assert (await stores.sales.create(SaleId("third"), rules(), NOW)).id == "third"


# --- what may be forgotten --------------------------------------------------------------------------------------------


async def test_only_sent_events_are_forgotten_the_oldest_first_and_in_pieces(stores: Stores) -> None:
    orders = [await sold(stores, f"b-{n}") for n in range(5)]
    events = [event_of_order(order, NOW) for order in orders]
    await stores.orders.mark_sent([event.id for event in events[:4]])
    retention = SqlRetention(stores.database)
    assert await retention.forget_sent_events(NOW, 9) == 0
    assert [await retention.forget_sent_events(NOW + 1, 3) for _ in range(3)] == [3, 1, 0]
    assert [event.id for event in await stores.orders.unsent_events(9)] == [events[4].id]
    assert await _count(stores, tables.stock_movements.c.seq) == 7, "the ledger stays"


async def test_decisions_of_settled_sales_are_forgotten_once_nothing_can_come_of_their_batches(stores: Stores) -> None:
    async def lose(transaction: SaleTransaction) -> None:
        for n in range(3):
            await transaction.record_decision(SALE, BatchId(f"mine-{n}"), [id_of("anna")], NOW)
        await transaction.record_decision(OTHER, BatchId("other"), [id_of("anna")], NOW)

    await stores.sales.set_status(SALE, SaleStatus.DRAFT, SaleStatus.OPEN, NOW)
    await drive(stores, *HOME, Authority.SQL)
    await stores.orders.transact([SALE, OTHER], lose)
    retention = SqlRetention(stores.database)
    assert await retention.forget_decisions(LATER, 9) == 0, "it is not settled"
    await stores.sales.set_status(SALE, SaleStatus.OPEN, SaleStatus.SETTLED, NOW)
    assert await retention.forget_decisions(NOW + 600_000, 9) == 0, "an older candidate may still come"
    assert [await retention.forget_decisions(NOW + 600_001, 2) for _ in range(3)] == [2, 1, 0]
    assert await _count(stores, tables.batch_decisions.c.batch_id) == 1


# --- a big sale -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_sale_with_two_hundred_thousand_orders_can_be_loaded(stores: Stores) -> None:
    """Under the row lock, by a deadline of its own: cut off by an ordinary one it would never come back to Redis."""
    count = 200_000
    order = await sold(stores, "anna")
    values = values_of_order(order)

    async def fill(connection: AsyncConnection) -> None:
        for start in range(0, count, 5_000):
            rows = [values | {"id": f"{SALE}.{n:024d}", "buyer_id": f"b-{n}"} for n in range(start, start + 5_000)]
            await connection.execute(insert(tables.orders), rows)

    await transactions.write(stores.database, fill, timeout_s=100)
    sale = await drive(stores, Authority.LOADING)
    stores.database.options = replace(stores.database.options, transaction_timeout_s=0.05)
    snapshot = await stores.sales.snapshot(SALE, sale.epoch)
    assert snapshot is not None
    assert len(snapshot.records) == count + 1


# ----------------------------------------------------------------------------------------------------------------------


async def _one_owed(stores: Stores) -> list[OwedUnlink]:
    await drive(stores, Authority.LOADING, Authority.SQL)
    return list(await stores.sales.owed_unlinks(NOW, 9))


def _owed(buyer: str, segment: int) -> Owed:
    return Owed(reservation_id=id_of(buyer), sale_id=SALE, segment=segment, epoch=2, effect=Effect.RETURN)


async def _pay(stores: Stores, id_: ReservationId, at_ms: int) -> StoredPayment:
    payment = Payment(
        id=PaymentId(f"pay-{id_}"), reservation_id=id_, status=PaymentStatus.SUCCEEDED, amount=4_990, currency="EUR"
    )
    stored = StoredPayment(payment=payment, outcome=PaymentOutcome.WAITING, received_at_ms=at_ms)

    async def work(transaction: SaleTransaction) -> None:
        await transaction.insert_payment(stored)

    await stores.orders.transact([], work)
    return stored


async def _count(stores: Stores, column: object) -> int:
    (row,) = await transactions.read_rows(stores.database, select(func.count(column)))  # type: ignore[arg-type]
    return int(row[0])
