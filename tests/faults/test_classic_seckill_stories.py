"""Faults that flash-sale projects are known for: warm-up, duplicates, lock-out, short SQL (failures F26-F35)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from service.adapters.redis.keys import key
from service.adapters.redis.stock import RedisStock
from service.domain.errors import RowRefused
from service.domain.ids import BuyerId, SaleId, reservation_id
from service.domain.stock import Slot
from tests.fixtures.seams import Once, reply_lost
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage, counted, until

pytestmark = [pytest.mark.server, pytest.mark.faults]

WRITE_OFFS = "dropgate_write_offs_total"


# --- F26: lock-out ----------------------------------------------------------------------------------------------------


async def test_a_buyer_is_not_locked_out_by_a_reservation_that_ended(stage: Stage) -> None:
    """F26: cancelled while queued, cancelled as an order, expired: each time the same buyer reserves again."""
    process = await stage.process("keeper")
    await stage.sale(rules(stock=1))
    queued = await stage.reserve("anna", "1")
    await stage.cancel(queued.reservation_id)
    process.start("order")
    ordered = await stage.reserve("anna", "2")
    await stage.becomes(ordered.reservation_id, "awaiting_payment")
    await stage.cancel(ordered.reservation_id)
    expired = await stage.reserve("anna", "3")
    await stage.becomes(expired.reservation_id, "awaiting_payment")
    await stage.jump(900)
    await stage.becomes(expired.reservation_id, "cancelled")
    await until(lambda: _reserves(stage, "anna", "4"), "anna reserves again")
    await stage.quiet()


async def test_an_order_that_can_never_be_made_is_rejected_and_locks_nobody_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F26, I5: a permanent error holds up no other, and past the queue deadline the buyer hears `not_confirmed`."""
    await stage.process("order", "keeper")
    await stage.sale(rules(stock=5))
    poisoned = reservation_id(SALE, BuyerId("poison"), "k")
    _poison(monkeypatch, poisoned)
    heard = [await stage.reserve(buyer) for buyer in ("anna", "poison", "bert")]
    for it in (heard[0], heard[2]):
        await stage.becomes(it.reservation_id, "awaiting_payment")
    assert (await stage.get(poisoned)).code == "queued"
    await stage.jump(600)
    again = await stage.becomes(poisoned, "rejected")
    assert again.reason == "not_confirmed"
    assert (await stage.reserve("poison", "another")).code == "queued"
    await stage.quiet()


# --- F27, F30 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [True, False])
async def test_one_buyer_with_a_thousand_requests_gets_one_unit(stage: Stage, *, keyed: bool) -> None:
    """F27: over three processes; then 99 others succeed."""
    for loops in (("order", "keeper"), ("order",), ()):
        await stage.process(*loops)
    await stage.sale(rules(stock=100))
    heard = await asyncio.gather(
        *[stage.reserve("anna", "k" if keyed else None, at=stage.processes[number % 3]) for number in range(1_000)]
    )
    assert len({it.id for it in heard if it.is_live}) == 1
    assert {it.code for it in heard if not it.is_live} <= {"limit_reached", "too_busy", "outcome_unknown"}
    others = await asyncio.gather(*[stage.reserve(f"b-{it}", at=stage.processes[it % 3]) for it in range(99)])
    assert all(it.is_live for it in others)
    assert (await stage.reserve("too-late")).code == "sold_out"
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 0


async def test_warming_a_sale_that_sells_changes_nothing(stage: Stage) -> None:
    """F30: every process restarts in mid-sale, and five operators warm it at once."""
    await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=20))
    heard = [await stage.reserve(f"a-{number}") for number in range(8)]
    await stage.close()
    stage.processes.clear()
    for loops in (("order", "keeper"), ()):
        await stage.process(*loops)
    sales = stage.first.cases.sales
    rush = asyncio.gather(*[stage.reserve(f"b-{it}", at=stage.processes[it % 2]) for it in range(30)])
    await asyncio.gather(*[sales.warm(SALE, ACTOR) for _ in range(5)])
    heard += await rush
    assert Counter(it.is_live for it in heard) == {True: 20, False: 18}
    assert (await stage.row()).epoch == sale.epoch
    await stage.quiet()


@pytest.mark.parametrize("name", ["stock", "meta", "records", "buyers", "batches", "bodies", "undelivered"])
async def test_a_deleted_key_with_twenty_queued_is_rebuilt_exactly(stage: Stage, name: str) -> None:
    """F30: warm-up after DEL, with 20 reservations whose orders are still queued."""
    process = await stage.process("keeper")
    sale = await stage.sale(rules(stock=50))
    queued = await asyncio.gather(*[stage.reserve(f"a-{number}") for number in range(20)])
    stage.server.call("DEL", key(Slot(sale_id=SALE, segment=0, epoch=sale.epoch), name))
    process.start("order")
    await process.cases.sales.warm(SALE, ACTOR)
    await stage.at_home(after_epoch=sale.epoch)
    more = await asyncio.gather(*[stage.reserve(f"b-{number}") for number in range(40)])
    for it in queued:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert sum(it.is_live for it in more) == 30
    assert (await stage.ledger()).sql.available == 0


# --- F31, F32, F35 ----------------------------------------------------------------------------------------------------


async def test_what_sql_does_not_have_is_rejected_with_its_reason_and_written_off(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31, F32: SQL has 5, Redis was given 10: five orders, five told `rejected`, an alarm, and no unit of air left."""
    load = RedisStock.load_stock

    async def load_ten(self: RedisStock, *args: Any, **terms: Any) -> Any:
        return await load(self, *args, **(terms | {"available": 10}))

    process = await stage.process("keeper")
    with monkeypatch.context() as patch:
        patch.setattr(RedisStock, "load_stock", load_ten)
        await stage.sale(rules(stock=5))
    alarms = counted(WRITE_OFFS, sale=SALE)
    heard = await asyncio.gather(*[stage.reserve(f"b-{number}") for number in range(10)])
    assert {it.code for it in heard} == {"queued"}
    async with stage.polled(*[it.reservation_id for it in heard]):
        process.start("order")
        await until(lambda: _settled(stage, 10), "ten rows")
    await stage.quiet()
    rows = (await stage.orders([it.reservation_id for it in heard])).values()
    ends = Counter((row.status.value, row.reason) for row in rows)
    assert ends == {("awaiting_payment", None): 5, ("rejected", "sold_out"): 5}
    assert counted(WRITE_OFFS, sale=SALE) - alarms == 5
    assert ((await stage.slot()).granted, (await stage.slot()).available) == (5, 0)
    rejected = next(row for row in rows if row.is_final)
    await process.cases.sales.adjust(SALE, "found-one", 1, ACTOR)
    again = await stage.reserve(rejected.buyer_id, "again")
    assert again.code == "queued", again
    await stage.quiet()


async def test_a_commit_that_comes_too_late_contradicts_nothing(stage: Stage) -> None:
    """F32: the deduct happened, nobody heard; its COMMIT comes after the sweep, a cancel and another sale of it."""
    process = await stage.process("keeper")
    await stage.sale(rules(stock=1))
    process.seam.after["reserve"] = reply_lost
    heard = await stage.reserve("anna")
    process.seam.heal()
    (batch,) = await stage.undelivered()
    async with stage.polled(heard.reservation_id):
        assert (await stage.reserve("anna")).code == "queued"
        await stage.becomes(heard.reservation_id, "awaiting_payment")
        await stage.cancel(heard.reservation_id)
        bert = await stage.reserve("bert")
        await stage.publish(batch)
        process.start("order")
        await stage.becomes(bert.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert (await stage.get(heard.reservation_id)).code == "cancelled"


async def test_one_key_fifty_times_at_once_is_one_reservation(stage: Stage) -> None:
    """F35: and the same key with another body is a misuse, with another sale another reservation."""
    for loops in (("order", "keeper"), ()):
        await stage.process(*loops)
    await stage.sale(rules(stock=60, limit=2))
    await stage.sale(rules(stock=60), SaleId("other"))
    heard = await asyncio.gather(*[stage.reserve("anna", at=stage.processes[it % 2]) for it in range(50)])
    assert len({it.id for it in heard}) == 1
    assert all(it.is_live for it in heard)
    assert sum(not it.replayed for it in heard) == 1
    assert (await stage.reserve("anna", quantity=2)).code == "idempotency_key_reused"
    assert (await stage.reserve("anna", coupon="SUMMER")).code == "idempotency_key_reused"
    assert (await stage.reserve("anna", sale_id=SaleId("other"))).id != heard[0].id
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 59


async def test_two_bodies_under_one_key_at_the_same_time_have_one_winner(stage: Stage) -> None:
    """F35: they meet in two processes, between the look and the deduct."""
    first, second = await stage.process("order", "keeper"), await stage.process()
    await stage.sale(rules(stock=10, limit=3))
    rival: list[Any] = []

    async def reserve_first() -> None:
        rival.append(await stage.reserve("anna", quantity=1, at=first))

    second.seam.before["reserve"] = Once(reserve_first)
    assert (await stage.reserve("anna", quantity=3, at=second)).code == "idempotency_key_reused"
    assert rival[0].code == "queued"
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 9


# ----------------------------------------------------------------------------------------------------------------------


def _poison(monkeypatch: pytest.MonkeyPatch, id_: str) -> None:
    """The database cannot hold this order, as with a value too long for its column; a final row has less in it."""
    from service.adapters.sql.sale_transaction import SqlSaleTransaction

    insert = SqlSaleTransaction.insert_orders

    async def refuse(self: SqlSaleTransaction, new: Any) -> None:
        if any(order.id == id_ and not order.is_final for order in new):
            raise RowRefused("a value that the column cannot hold")
        await insert(self, new)

    monkeypatch.setattr(SqlSaleTransaction, "insert_orders", refuse)


async def _reserves(stage: Stage, buyer: str, its_key: str) -> bool:
    return (await stage.reserve(buyer, its_key)).is_live


async def _settled(stage: Stage, rows: int) -> bool:
    return len(await stage.orders(stage.told.ids())) == rows
