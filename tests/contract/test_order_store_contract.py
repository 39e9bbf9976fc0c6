"""What ports.orders promises of an OrderStore, on every database; two stores are two processes."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import transactions
from service.adapters.sql.database import DatabaseOptions
from service.domain.errors import EpochChanged, InvariantBroken, NotFound, StoreUnavailable
from service.domain.event import event_of_order
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId, new_batch_id
from service.domain.order import Decision, Order, Owed, cancel
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus, RefundReason
from service.domain.reservation import Reason, Status
from service.domain.sale import Authority
from service.domain.stock import Effect
from service.ports.orders import Adjustment, SaleTransaction, StockMovement, StoredPayment
from tests.fixtures.sql import (
    NOW,
    SALE,
    Stores,
    claim,
    decide,
    drive,
    expire,
    give_back,
    id_of,
    pay,
    problems,
    rules,
    sale_now,
    sell,
    sold,
    stores_on,
)

LATER = NOW + 10_000_000
"""Past the queue deadline of everything that came at NOW."""
OTHER = SaleId("sneaker-02")


@pytest.fixture(autouse=True)
async def _a_sale(stores: Stores) -> None:
    await stores.sales.create(SALE, rules(stock=10), NOW)


# --- the order transaction --------------------------------------------------------------------------------------------


async def test_the_order_transaction_takes_only_what_is_there(stores: Stores) -> None:
    decision = await sell(stores, [claim(f"b{n}") for n in range(13)])

    assert (len(decision.accepted), len(decision.rejected)) == (10, 3)
    assert {order.reason for order in decision.rejected} == {Reason.SOLD_OUT}
    assert (await sale_now(stores)).available == 0
    assert await problems(stores) == ()


async def test_two_processes_together_sell_no_more_than_there_is(rivals: tuple[Stores, Stores]) -> None:
    decisions = await asyncio.gather(*(sell(rivals[n % 2], [claim(f"b{n}")]) for n in range(30)))

    assert sum(len(decision.accepted) for decision in decisions) == 10
    assert await problems(rivals[0]) == ()


async def test_an_order_comes_back_as_it_was_written(stores: Stores) -> None:
    order = await sold(stores, "ännä ")

    assert await stores.orders.order(order.id) == order
    assert await stores.orders.order(id_of("nobody")) is None


async def test_a_redelivered_claim_meets_its_row(stores: Stores) -> None:
    first = await sold(stores, "anna")
    again = await sell(stores, [claim("anna"), claim("anna")])

    assert again.existing == (first,)
    assert (again.accepted, again.rejected) == ((), ())
    assert (await sale_now(stores)).available == 9


async def test_two_hundred_deliveries_of_one_message_make_one_order(rivals: tuple[Stores, Stores]) -> None:
    decisions = await asyncio.gather(*(sell(rivals[n % 2], [claim("anna")]) for n in range(200)))

    assert sum(len(decision.accepted) for decision in decisions) == 1
    assert (await sale_now(rivals[0])).available == 9


async def test_work_that_fails_leaves_nothing(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await decide(transaction, [claim("anna")])
        raise EpochChanged(SALE, 1, 2)

    with pytest.raises(EpochChanged):
        await stores.orders.transact([SALE], work)

    assert await stores.orders.order(id_of("anna")) is None
    assert (await sale_now(stores)).available == 10
    assert await problems(stores) == ()


async def test_stock_that_is_not_there_is_not_taken_whatever_the_work_believes(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.move_stock([_movement("too-much", -11)])

    with pytest.raises(InvariantBroken):
        await stores.orders.transact([SALE], work)

    assert (await sale_now(stores)).available == 10
    assert await problems(stores) == ()


async def test_a_stock_movement_counts_once(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.move_stock([_movement("release:1", -1)])

    await stores.orders.transact([SALE], work)
    with pytest.raises(InvariantBroken):
        await stores.orders.transact([SALE], work)

    assert (await sale_now(stores)).available == 9


async def test_stock_of_a_sale_that_is_not_locked_does_not_move(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.move_stock([_movement("unlocked", -1)])

    with pytest.raises(InvariantBroken):
        await stores.orders.transact([], work)


@pytest.mark.parametrize("delta", [2, -1])
async def test_a_buyers_counter_stays_between_nothing_and_the_limit(stores: Stores, delta: int) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.add_buyer_units(SALE, {BuyerId("anna"): 1, BuyerId("bert"): delta}, 1)

    with pytest.raises(InvariantBroken):
        await stores.orders.transact([SALE], work)

    assert (await stores.orders.terms(SALE)).buyers_units == 0


async def test_the_locked_row_shows_what_the_transaction_itself_took(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> tuple[int, int]:
        await decide(transaction, [claim("anna")])
        return transaction.sales[SALE].available, len((await decide(transaction, [claim("bert")])).accepted)

    assert await stores.orders.transact([SALE], work) == (9, 1)
    assert await problems(stores) == ()


async def test_sales_that_lock_each_other_crosswise_do_not_deadlock(rivals: tuple[Stores, Stores]) -> None:
    await rivals[0].sales.create(OTHER, rules(stock=40, limit=40), NOW)

    async def both(stores: Stores, n: int) -> None:
        async def work(transaction: SaleTransaction) -> None:
            assert list(transaction.sales) == sorted([SALE, OTHER])
            await decide(transaction, [claim(f"b{n}", sale_id=OTHER)], NOW, OTHER)

        await stores.orders.transact([OTHER, SALE] if n % 2 else [SALE, OTHER], work)

    await asyncio.gather(*(both(rivals[n % 2], n) for n in range(20)))
    assert (await sale_now(rivals[0], OTHER)).available == 20


async def test_a_sale_that_does_not_exist_is_absent_from_the_locked_ones(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> set[SaleId]:
        return set(transaction.sales)

    assert await stores.orders.transact([SALE, OTHER], work) == {SALE}


async def test_thousands_of_ids_are_looked_up_at_once(stores: Stores) -> None:
    await stores.sales.create(OTHER, rules(stock=1_300), NOW)
    claims = [claim(f"b{n}", sale_id=OTHER) for n in range(1_300)]
    decision = await sell(stores, claims, NOW, OTHER)
    found = await stores.orders.orders([*(order.id for order in decision.accepted), id_of("nobody")])

    assert len(found) == len(decision.accepted) == 1_300
    assert await problems(stores, OTHER) == ()


# --- time, pauses and lost answers ------------------------------------------------------------------------------------


async def test_a_paused_transaction_cannot_count_twice(
    rivals: tuple[Stores, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, waiting, resume = asyncio.Event(), asyncio.Event(), asyncio.Event()
    _note_second_lock(monkeypatch, waiting)

    async def slow(transaction: SaleTransaction) -> Decision:
        decision = await decide(transaction, [claim("anna")])
        paused.set()
        await resume.wait()
        return decision

    first = asyncio.create_task(rivals[0].orders.transact([SALE], slow))
    await paused.wait()
    waiting.clear()
    second = asyncio.create_task(sell(rivals[1], [claim("anna")]))
    await waiting.wait()
    resume.set()

    assert len((await first).accepted) == 1
    assert [order.id for order in (await second).existing] == [id_of("anna")]
    assert (await sale_now(rivals[0])).available == 9
    assert await problems(rivals[0]) == ()


async def test_epoch_change_in_mid_flight_makes_the_transaction_start_over(
    rivals: tuple[Stores, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process read the sale, was paused, and comes back after the authority moved on."""
    seen = await sale_now(rivals[0])
    await drive(rivals[1], Authority.LOADING, Authority.REDIS)

    async def work(transaction: SaleTransaction) -> None:
        locked = transaction.sales[SALE]
        if (locked.authority, locked.epoch) != (seen.authority, seen.epoch):
            raise EpochChanged(SALE, seen.epoch, locked.epoch)
        await decide(transaction, [claim("anna")])

    with pytest.raises(EpochChanged):
        await rivals[0].orders.transact([SALE], work)
    assert await rivals[0].orders.order(id_of("anna")) is None


async def test_the_authority_cannot_change_while_an_order_transaction_runs(
    rivals: tuple[Stores, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, waiting, resume = asyncio.Event(), asyncio.Event(), asyncio.Event()
    await drive(rivals[1])
    _note_second_lock(monkeypatch, waiting)

    async def slow(transaction: SaleTransaction) -> int:
        paused.set()
        await resume.wait()
        await decide(transaction, [claim("anna")])
        return transaction.sales[SALE].epoch

    selling = asyncio.create_task(rivals[0].orders.transact([SALE], slow))
    await paused.wait()
    waiting.clear()
    changing = asyncio.create_task(drive(rivals[1], Authority.LOADING))
    await waiting.wait()
    assert not changing.done()
    resume.set()

    assert await selling == 1
    changed = await changing
    assert (changed.epoch, changed.available) == (2, 9)


async def test_a_transaction_that_meets_a_lock_is_run_again(
    rivals: tuple[Stores, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    async def work(transaction: SaleTransaction) -> Decision:
        runs.append(transaction)
        if len(runs) == 1:
            raise exc.OperationalError("UPDATE", {}, _lock_error(rivals[0]))
        return await decide(transaction, [claim("anna")])

    decision = await rivals[0].orders.transact([SALE], work)
    assert (len(runs), len(decision.accepted)) == (2, 1)
    assert await problems(rivals[0]) == ()


async def test_a_database_that_keeps_others_waiting_is_unavailable_in_time(database_url: str, stores: Stores) -> None:
    hurried = stores_on(database_url, DatabaseOptions(transaction_timeout_s=0.2, timeout_s=0.2))
    paused, resume = asyncio.Event(), asyncio.Event()

    async def slow(_: SaleTransaction) -> None:
        paused.set()
        await resume.wait()

    holding = asyncio.create_task(stores.orders.transact([SALE], slow))
    await paused.wait()
    try:
        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailable):
                await sell(hurried, [claim("anna")])
    finally:
        resume.set()
        await holding
        await hurried.database.close()
    assert await stores.orders.order(id_of("anna")) is None


async def test_ambiguous_commit_is_resolved_by_reading(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The COMMIT arrives, its answer does not: the caller reads, or runs the same work again."""
    commit = AsyncConnection.commit

    async def commit_without_answer(connection: AsyncConnection) -> None:
        await commit(connection)
        raise exc.OperationalError("COMMIT", {}, ConnectionResetError(2013, "Lost connection during query"))

    with monkeypatch.context() as cut:
        cut.setattr(AsyncConnection, "commit", commit_without_answer)
        with pytest.raises(StoreUnavailable):
            await sell(stores, [claim("anna")])

    assert await stores.orders.order(id_of("anna")) is not None
    again = await sell(stores, [claim("anna")])
    assert [order.id for order in again.existing] == [id_of("anna")]
    assert (await sale_now(stores)).available == 9
    assert await problems(stores) == ()


async def test_a_status_poll_sees_what_another_process_committed(rivals: tuple[Stores, Stores]) -> None:
    assert await rivals[1].orders.order(id_of("anna")) is None
    await sold(rivals[0], "anna")
    assert await rivals[1].orders.order(id_of("anna")) is not None


# --- pay, cancel, expire ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_pay_and_cancel_race_has_one_winner(rivals: tuple[Stores, Stores]) -> None:
    rounds = 300
    await rivals[0].sales.create(OTHER, rules(stock=rounds), NOW)
    orders = (await sell(rivals[0], [claim(f"b{n}", sale_id=OTHER) for n in range(rounds)], NOW, OTHER)).accepted
    chance = random.Random(18)

    async def race(order: Order) -> tuple[bool, bool]:
        acts = [pay(rivals[0], order), expire(rivals[1], order)]
        if chance.random() < 0.5:
            return tuple(await asyncio.gather(*acts))  # type: ignore[return-value]
        cancelled, paid = await asyncio.gather(*reversed(acts))
        return paid, cancelled

    results = [await race(order) for order in orders]

    assert all(paid != cancelled for paid, cancelled in results)
    terms = await rivals[0].orders.terms(OTHER)
    assert terms.paid == sum(paid for paid, _ in results)
    assert terms.available == sum(cancelled for _, cancelled in results)
    assert await problems(rivals[0], OTHER) == ()


async def test_an_order_that_changed_meanwhile_is_not_replaced(stores: Stores) -> None:
    order = await sold(stores, "anna")
    assert await pay(stores, order)
    assert not await expire(stores, order)
    found = await stores.orders.order(order.id)
    assert found is not None
    assert (found.status, found.paid_by) == (Status.PAID, f"pay-{order.id}")


async def test_replacing_an_order_by_itself_is_no_lost_race(stores: Stores) -> None:
    order = await sold(stores, "anna")

    async def work(transaction: SaleTransaction) -> bool:
        return await transaction.replace_order(order, expected=Status.AWAITING_PAYMENT)

    assert await stores.orders.transact([], work)


async def test_a_cancel_gives_back_once(stores: Stores) -> None:
    order = await sold(stores, "anna")
    assert [await expire(stores, order) for _ in range(3)] == [True, False, False]
    assert (await sale_now(stores)).available == 10
    assert await problems(stores) == ()
    assert len((await sell(stores, [claim("anna", key="again")])).accepted) == 1


async def test_expired_orders_come_oldest_first_and_paid_ones_not_at_all(stores: Stores) -> None:
    for n in (3, 1, 2):
        await sell(stores, [claim(f"b{n}")], NOW + n * 1_000)
    paid = await sold(stores, "payer")
    await pay(stores, paid)
    due = NOW + 900_000

    assert await stores.orders.expired(due + 999, 10) == []
    assert [order.buyer_id for order in await stores.orders.expired(due + 2_000, 10)] == ["b1", "b2"]
    assert [order.buyer_id for order in await stores.orders.expired(due + 9_000, 1)] == ["b1"]


async def test_of_many_orders_those_that_are_due_and_unpaid_are_cancelled(stores: Stores) -> None:
    await stores.sales.create(OTHER, rules(stock=9, limit=9), NOW)
    anna, bert, carl = [
        (await sell(stores, [claim(who, sale_id=OTHER)], NOW + n, OTHER)).accepted[0]
        for n, who in enumerate(("anna", "bert", "carl"))
    ]
    due_ms = bert.expires_at_ms
    assert due_ms is not None
    ids = [carl.id, bert.id, anna.id, ReservationId(f"{OTHER}.nobody")]

    async def work(transaction: SaleTransaction) -> frozenset[ReservationId]:
        assert await transaction.replace_order(replace(anna, status=Status.PAID), expected=Status.AWAITING_PAYMENT)
        return await transaction.cancel_unpaid(ids, Reason.PAYMENT_TIMEOUT, due_before_ms=due_ms)

    assert await stores.orders.transact([OTHER], work) == {bert.id}
    rows = await stores.orders.orders([anna.id, bert.id, carl.id])
    states = {id_: (row.status, row.reason) for id_, row in rows.items()}
    assert states == {
        anna.id: (Status.PAID, None),
        bert.id: (Status.CANCELLED, Reason.PAYMENT_TIMEOUT),
        carl.id: (Status.AWAITING_PAYMENT, None),
    }


async def test_of_a_buyer_the_newest_live_order_is_found(stores: Stores) -> None:
    await stores.sales.create(OTHER, rules(stock=9, limit=9), NOW)
    orders: list[Order] = []
    for n in range(3):
        decision = await sell(stores, [claim("anna", key=str(n), sale_id=OTHER)], NOW + n, OTHER)
        orders += decision.accepted
    await sell(stores, [claim("bert", sale_id=OTHER)], NOW, OTHER)
    ended = cancel(orders[2], Reason.BUYER_CANCELLED)
    assert isinstance(ended, Order)

    async def work(transaction: SaleTransaction) -> None:
        assert await transaction.replace_order(ended, expected=Status.AWAITING_PAYMENT)
        await give_back(transaction, ended, "cancel")

    await stores.orders.transact([OTHER], work)
    found = await stores.orders.live_orders(OTHER, [BuyerId("anna"), BuyerId("carl")])
    assert found == {BuyerId("anna"): orders[1]}


async def test_a_transaction_reads_what_is_owed_to_the_ids_it_met(stores: Stores) -> None:
    owed = [_owed("anna", 1, Effect.WRITE_OFF), _owed("bert", 1)]

    async def work(transaction: SaleTransaction) -> dict[ReservationId, Owed]:
        await transaction.owe(owed)
        return await transaction.owed_to([id_of("anna"), id_of("carl")])

    assert await stores.orders.transact([SALE], work) == {id_of("anna"): owed[0]}


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", ["Anna", "anna ", " anna", "ánna", "a\u0301nna", "anna\u00a0", "anna\u0000", "😀" * 128]
)
async def test_ids_compare_as_bytes(stores: Stores, other: str) -> None:
    decision = await sell(stores, [claim("anna"), claim(other)])
    assert len(decision.accepted) == 2

    async def work(transaction: SaleTransaction) -> dict[BuyerId, int]:
        return await transaction.buyer_units(SALE, [BuyerId("anna"), BuyerId(other), BuyerId("ANNA")])

    assert await stores.orders.transact([SALE], work) == {BuyerId("anna"): 1, BuyerId(other): 1}
    assert list(await stores.orders.live_orders(SALE, [BuyerId(other)])) == [other]


async def test_payment_ids_compare_as_bytes(stores: Stores) -> None:
    ids = ["pay", "PAY", "pay ", "páy"]
    for id_ in ids:
        await _store_payment(stores, id_of(id_), payment_id=id_)
    assert {it.payment.id for it in await stores.orders.overdue_payments(LATER, 9)} == set(ids)


# --- decisions of batches ---------------------------------------------------------------------------------------------


async def test_a_decision_is_recorded_once(stores: Stores) -> None:
    batch, losers = new_batch_id(), [id_of("anna"), id_of("bert")]
    await _record(stores, batch, losers)
    await _record(stores, batch, list(reversed(losers)))

    assert await stores.orders.batch_rows(batch) == (frozenset(), frozenset(losers))
    with pytest.raises(InvariantBroken):
        await _record(stores, batch, losers[:1])


async def test_a_batch_shows_its_orders_and_its_losers(stores: Stores) -> None:
    batch = new_batch_id()
    await sell(stores, [claim("anna", batch_id=batch), claim("bert", batch_id=batch), claim("carl")])
    assert await stores.orders.batch_rows(batch) == (frozenset({id_of("anna"), id_of("bert")}), None)

    await _record(stores, batch, [id_of("dora")])
    assert (await stores.orders.batch_rows(batch))[1] == frozenset({id_of("dora")})
    assert await stores.orders.batch_rows(BatchId("unknown")) == (frozenset(), None)

    async def work(transaction: SaleTransaction) -> dict[BatchId, frozenset[ReservationId]]:
        return await transaction.decisions([batch, BatchId("unknown")])

    assert await stores.orders.transact([SALE], work) == {batch: {id_of("dora")}}


# --- what is owed to Redis --------------------------------------------------------------------------------------------


async def test_an_effect_is_owed_only_while_redis_decides_in_its_epoch(stores: Stores) -> None:
    sale = await drive(stores, Authority.LOADING, Authority.REDIS)
    owed = _owed("anna", sale.epoch)
    await _owe(stores, owed)
    assert await stores.orders.owed(9) == [owed]
    assert (await stores.orders.terms(SALE)).owed == 1

    await drive(stores, Authority.SQL)
    assert await stores.orders.owed(9) == []
    assert (await stores.orders.terms(SALE)).owed == 0


async def test_release_owed_in_an_older_epoch_is_not_cleared_by_a_newer_ones_release(stores: Stores) -> None:
    await drive(stores, Authority.LOADING, Authority.REDIS)
    await _owe(stores, _owed("anna", 2))
    await stores.orders.clear_owed([_owed("anna", 3), _owed("anna", 1)])
    assert await stores.orders.owed(9) == [_owed("anna", 2)]

    await stores.orders.clear_owed([_owed("anna", 2)])
    assert await stores.orders.owed(9) == []


async def test_one_effect_a_reservation_and_the_newest_epochs_stays(stores: Stores) -> None:
    sale = await drive(stores, Authority.LOADING, Authority.REDIS, Authority.SQL, Authority.LOADING, Authority.REDIS)
    newest = _owed("anna", sale.epoch, Effect.WRITE_OFF)
    await _owe(stores, _owed("anna", sale.epoch - 1))
    await _owe(stores, newest)
    await _owe(stores, _owed("anna", sale.epoch - 1))
    await _owe(stores, _owed("anna", sale.epoch))
    assert await stores.orders.owed(9) == [newest]


async def test_the_end_of_a_reservation_outranks_that_it_was_kept(stores: Stores) -> None:
    await drive(stores, Authority.LOADING, Authority.REDIS)
    await _owe(stores, _owed("anna", 2, Effect.KEEP))
    await _owe(stores, _owed("anna", 2, Effect.RETURN))
    await stores.orders.clear_owed([_owed("anna", 2, Effect.KEEP)])
    assert await stores.orders.owed(9) == [_owed("anna", 2, Effect.RETURN)]


# --- outbox -----------------------------------------------------------------------------------------------------------


async def test_an_event_leaves_once_and_in_order(stores: Stores) -> None:
    orders = [await sold(stores, f"b{n}") for n in range(5)]

    async def again(transaction: SaleTransaction) -> None:
        await transaction.emit([event_of_order(order, NOW) for order in orders])

    await stores.orders.transact([SALE], again)
    events = await stores.orders.unsent_events(9)
    assert [event.reservation_id for event in events] == [order.id for order in orders]
    assert events[0] == event_of_order(orders[0], NOW)

    await stores.orders.mark_sent([event.id for event in events[:2]])
    await stores.orders.transact([SALE], again)
    assert [event.id for event in await stores.orders.unsent_events(2)] == [event.id for event in events[2:4]]


# --- money ------------------------------------------------------------------------------------------------------------


async def test_a_payment_waits_for_its_order_and_is_found_with_it(stores: Stores) -> None:
    await _store_payment(stores, id_of("anna"))
    (waiting,) = await stores.orders.overdue_payments(LATER, 9)

    async def work(transaction: SaleTransaction) -> list[StoredPayment]:
        return list(await transaction.waiting_payments_of([id_of("anna"), id_of("bert")]))

    assert await stores.orders.transact([SALE], work) == [waiting]
    assert (await stores.orders.terms(SALE)).payments_waiting == 1
    assert await problems(stores) == ()


async def test_the_same_payment_reported_at_once_by_two_processes_is_stored_once(
    rivals: tuple[Stores, Stores],
) -> None:
    await asyncio.gather(*(_store_payment(rivals[n % 2], id_of("anna")) for n in range(12)))
    assert len(await rivals[0].orders.overdue_payments(LATER, 99)) == 1


async def test_a_payment_has_one_refund_however_often_it_is_asked_for(stores: Stores) -> None:
    payment = await _store_payment(stores, id_of("anna"))

    async def refund(transaction: SaleTransaction) -> None:
        await transaction.insert_refund(payment, RefundReason.NO_ORDER, NOW)
        await transaction.resolve_payment(payment.id, PaymentOutcome.REFUND_REQUIRED, NOW)

    for _ in range(3):
        await stores.orders.transact([], refund)
    terms = await stores.orders.terms(SALE)
    assert (terms.payments_succeeded, terms.refunds, terms.payments_waiting) == (1, 1, 0)
    assert await problems(stores) == ()


async def test_money_that_no_order_and_no_refund_knows_is_a_broken_invariant(stores: Stores) -> None:
    payment = await _store_payment(stores, id_of("anna"))

    async def claim_it_was_applied(transaction: SaleTransaction) -> None:
        await transaction.resolve_payment(payment.id, PaymentOutcome.APPLIED, NOW)

    await stores.orders.transact([], claim_it_was_applied)
    assert [problem[:2] for problem in await problems(stores)] == ["I6"]


# --- adjustments, terms, audit ----------------------------------------------------------------------------------------


async def test_an_adjustment_moves_stock_once_and_the_ledger_balances(stores: Stores) -> None:
    await drive(stores, Authority.LOADING, Authority.REDIS)
    begun = Adjustment(id="adj-1", sale_id=SALE, delta=5, applied=False, owed_epoch=None)
    done = replace(begun, applied=True, owed_epoch=2)
    await _put(stores, begun)
    assert await stores.orders.unfinished_adjustments(NOW + 1, 9) == [begun]
    assert await stores.orders.unfinished_adjustments(NOW, 9) == []

    async def apply(transaction: SaleTransaction) -> None:
        await transaction.put_adjustment(done, NOW)
        await transaction.move_stock([_movement("adjust:adj-1", 5)])

    await stores.orders.transact([SALE], apply)
    await _put(stores, done)
    sale = await sale_now(stores)
    assert (sale.adjusted, sale.available, sale.capacity) == (5, 15, 15)
    assert await stores.orders.unfinished_adjustments(NOW + 1, 9) == [done]
    assert await problems(stores) == ()

    await _put(stores, replace(done, owed_epoch=None))
    assert await stores.orders.unfinished_adjustments(NOW + 1, 9) == []


async def test_a_withdrawn_adjustment_changes_nothing(stores: Stores) -> None:
    await _put(stores, Adjustment(id="adj-1", sale_id=SALE, delta=-50, applied=False, owed_epoch=None))
    await _put(stores, Adjustment(id="adj-1", sale_id=SALE, delta=0, applied=True, owed_epoch=None))
    assert (await sale_now(stores)).adjusted == 0
    assert await stores.orders.unfinished_adjustments(NOW + 1, 9) == []


async def test_the_terms_of_an_unknown_sale_are_not_zeros(stores: Stores) -> None:
    with pytest.raises(NotFound):
        await stores.orders.terms(OTHER)


async def test_a_refund_without_restock_keeps_its_units(stores: Stores) -> None:
    order = await sold(stores, "anna")
    await pay(stores, order)

    async def refund(transaction: SaleTransaction) -> None:
        paid = (await transaction.orders([order.id]))[order.id]
        await transaction.replace_order(replace(paid, status=Status.REFUNDED), expected=Status.PAID)

    await stores.orders.transact([SALE], refund)
    terms = await stores.orders.terms(SALE)
    assert (terms.refunded_kept, terms.available) == (1, 9)
    assert await problems(stores) == ()


async def test_an_act_is_audited_in_the_transaction_that_did_it(stores: Stores) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.audit("ops", "repair", SALE, why="dry run off", detail={"units": 1}, at_ms=NOW)

    await stores.orders.transact([SALE], work)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _note_second_lock(monkeypatch: pytest.MonkeyPatch, asked: asyncio.Event) -> None:
    """Set `asked` when a transaction is about to begin and lock."""
    once = transactions._once

    async def noted(*args: object, **options: object) -> object:
        asked.set()
        return await once(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(transactions, "_once", noted)


def _lock_error(stores: Stores) -> Exception:
    if not stores.database.is_sqlite:
        return RuntimeError(1213, "Deadlock found when trying to get lock; try restarting transaction")
    locked = RuntimeError("database is locked")
    locked.sqlite_errorcode = 5  # type: ignore[attr-defined]
    return locked


def _movement(key: str, delta: int) -> StockMovement:
    return StockMovement(key=key, sale_id=SALE, kind="test", delta=delta, at_ms=NOW)


def _owed(buyer: str, epoch: int, effect: Effect = Effect.RETURN) -> Owed:
    return Owed(reservation_id=id_of(buyer), sale_id=SALE, segment=0, epoch=epoch, effect=effect)


async def _owe(stores: Stores, owed: Owed) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.owe([owed])

    await stores.orders.transact([SALE], work)


async def _put(stores: Stores, adjustment: Adjustment) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.put_adjustment(adjustment, NOW)

    await stores.orders.transact([SALE], work)


async def _record(stores: Stores, batch: BatchId, losers: list[ReservationId]) -> None:
    async def work(transaction: SaleTransaction) -> None:
        await transaction.record_decision(SALE, batch, losers, NOW)

    await stores.orders.transact([SALE], work)


async def _store_payment(stores: Stores, reservation: ReservationId, payment_id: str = "pay-1") -> Payment:
    payment = Payment(
        id=payment_id,  # type: ignore[arg-type]
        reservation_id=reservation,
        status=PaymentStatus.SUCCEEDED,
        amount=4_990,
        currency="EUR",
    )

    async def work(transaction: SaleTransaction) -> Payment:
        if await transaction.payment(payment.id) is None:
            stored = StoredPayment(payment=payment, outcome=PaymentOutcome.WAITING, received_at_ms=NOW)
            await transaction.insert_payment(stored)
        return payment

    return await stores.orders.transact([], work)
