"""The keeper's sweeps with items in trouble: who fails, who waits behind whom, what is told (core/sweeps.py,
core/unlinking.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

import pytest
from prometheus_client import REGISTRY

from service.adapters.memory.clock import ManualClock
from service.adapters.memory.stock import MemoryStock
from service.core import sweeps
from service.core.directory import SaleDirectory
from service.core.ending import EndingService
from service.core.expiry import PaymentExpiry
from service.core.fates import Fates
from service.core.order_intake import OrderIntake
from service.core.release import Releases
from service.core.sweeps import ExpirySweep, OwedSweep, UndeliveredSweep
from service.core.unlinking import LATE_MS, UnlinkSweep
from service.domain.batch import SCHEMA, PaymentTimeoutMessage, encode
from service.domain.errors import InvariantBroken, StockUnavailable, StoreUnavailable
from service.domain.ids import ReservationId, SaleId
from service.domain.order import Order, Owed
from service.domain.sale import Sale
from service.domain.stock import Effect, Slot, slots_of
from service.ports.messaging import Delivery, RetryAfter
from service.ports.orders import OrderStore, OwedUnlink, SaleStore
from service.ports.stock import Stock
from tests.fixtures.domain import a_sale, an_order
from tests.fixtures.seams import Seam, away
from tests.fixtures.stock import candidate, load, new_slot, reserve

# --- expiry -----------------------------------------------------------------------------------------------------------


class Due:
    """Orders past their time: as a store lists them, and an ending that some of them, or their whole sale, refuse."""

    def __init__(self, **sales: int) -> None:
        self.left = [
            replace(an_order(id_=ReservationId(f"{sale}.{n:03d}")), sale_id=SaleId(sale))
            for sale, count in sales.items()
            for n in range(count)
        ]
        self.poison: set[str] = set()
        self.away: set[str] = set()
        self.calls = 0

    async def expired(self, before_ms: int, limit: int, *, besides: Collection[SaleId] = ()) -> Sequence[Order]:
        return [order for order in self.left if order.sale_id not in besides][:limit]

    async def cancel_expired(self, orders: Sequence[Order]) -> int:
        self.calls += 1
        if any(order.sale_id in self.away for order in orders):
            raise StoreUnavailable("sql", "the row is locked")
        if any(order.id in self.poison for order in orders):
            raise InvariantBroken("row")
        self.left = [order for order in self.left if order not in orders]
        return len(orders)

    def sweep(self, clock: ManualClock) -> ExpirySweep:
        return ExpirySweep(cast(OrderStore, self), cast(EndingService, self), clock)


async def test_a_sale_whose_orders_cannot_be_cancelled_ends_the_turn_of_no_other() -> None:
    due = Due(bad=3, good=3)
    due.away = {"bad"}
    assert await due.sweep(ManualClock()).turn() == 3
    assert {order.sale_id for order in due.left} == {"bad"}


async def test_a_sale_in_trouble_with_more_orders_than_a_turn_takes_starves_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "ORDERS_A_TURN", 5)
    due, clock = Due(bad=9, good=3), ManualClock()
    due.away = {"bad"}
    sweep = due.sweep(clock)
    with pytest.raises(StoreUnavailable):
        await sweep.turn()
    assert await sweep.turn() == 3


async def test_one_order_that_sql_refuses_is_found_and_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "ORDERS_A_TURN", 8)
    due, clock = Due(sale=20), ManualClock()
    due.poison = {"sale.000", "sale.005"}
    sweep = due.sweep(clock)
    assert [await sweep.turn() for _ in range(3)] == [6, 8, 4]
    assert {order.id for order in due.left} == due.poison
    calls = due.calls
    assert await sweep.turn() == 0
    assert due.calls == calls, "they rest"
    due.poison.clear()
    await clock.advance(60)
    assert await sweep.turn() == 2


async def test_a_delay_message_whose_order_sql_refuses_ends_no_consumer_and_comes_again_more_rarely() -> None:
    due, clock = Due(), ManualClock()
    order = an_order(expires_at_ms=0)
    due.poison = {order.id}

    async def orders(ids: Sequence[ReservationId]) -> dict[ReservationId, Order]:
        return {order.id: order}

    due.orders = orders  # type: ignore[attr-defined]
    ids = (order.id,)
    body = encode(PaymentTimeoutMessage(schema=SCHEMA, sale_id=order.sale_id, reservation_ids=ids, expires_at_ms=0))
    expiry = PaymentExpiry(cast(OrderStore, due), cast(EndingService, due), clock)
    delays = []
    for attempt in (1, 2, 9):
        delivery = Delivery(topic="t", message_id="m", key="k", body=body, attempt=attempt, born_at_ms=0, receipt=None)
        ((_, outcome),) = await expiry.process([delivery])
        assert isinstance(outcome, RetryAfter)
        delays.append(outcome.delay_s)
    assert delays == [5, 10, 300]


# --- owed effects -----------------------------------------------------------------------------------------------------


class OwedRows:
    def __init__(self, *owed: Owed) -> None:
        self.left = list(owed)

    async def owed(self, limit: int, *, besides: Collection[Slot] = ()) -> Sequence[Owed]:
        return [it for it in self.left if Slot(sale_id=it.sale_id, segment=it.segment, epoch=it.epoch) not in besides][
            :limit
        ]

    async def clear_owed(self, owed: Sequence[Owed]) -> None:
        self.left = [it for it in self.left if it not in owed]


async def test_a_slot_that_fails_does_not_fill_the_turns_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "OWED_A_TURN", 4)
    clock = ManualClock()
    stock = Seam(cast(Stock, MemoryStock(clock)))
    bad, good = new_slot(), new_slot()
    for slot in (bad, good):
        await load(cast(Stock, stock), slot, 10)
    rows = OwedRows(*[_owed(slot, n) for slot in (bad, good) for n in range(6)])

    async def broken(slot: Slot, _: object) -> None:
        if slot == bad:
            raise StockUnavailable("redis", "WRONGTYPE")

    stock.before["end"] = broken
    releases = Releases(cast(SaleDirectory, None), cast(Stock, stock), cast(OrderStore, rows))
    sweep = OwedSweep(cast(OrderStore, rows), releases, clock)
    with pytest.raises(StockUnavailable):
        await sweep.turn()
    assert [await sweep.turn() for _ in range(3)] == [4, 2, 0]
    assert {it.sale_id for it in rows.left} == {bad.sale_id}


def _owed(slot: Slot, number: int) -> Owed:
    return Owed(
        reservation_id=ReservationId(f"{slot.sale_id}.{number:028d}"),
        sale_id=slot.sale_id,
        segment=slot.segment,
        epoch=slot.epoch,
        effect=Effect.RETURN,
    )


# --- decided batches without orders -----------------------------------------------------------------------------------


class Decides:
    async def decide_stored(self, found: Sequence[object]) -> Fates:
        return Fates()


async def test_the_age_of_what_is_in_doubt_is_that_of_the_oldest_of_all_segments() -> None:
    """And it is not 0 in between: an alarm that looks at that moment would be over."""
    clock = ManualClock()
    stock = Seam(cast(Stock, MemoryStock(clock)))
    sale = replace(a_sale(), id=SaleId("aged"), segments=3)
    slots = slots_of(sale.id, sale.epoch, 3)
    for slot in slots:
        await load(cast(Stock, stock), slot, 5)
    await reserve(cast(Stock, stock), slots[0], candidate(slots[0]))
    await clock.advance(100)
    gauges: list[float | None] = []

    async def look(*_: object) -> None:
        gauges.append(REGISTRY.get_sample_value("dropgate_in_doubt_age_seconds", {"sale": "aged"}))

    sweep = UndeliveredSweep(
        directory=cast(SaleDirectory, OneSale(sale)),
        stock=cast(Stock, stock),
        intake=cast(OrderIntake, Decides()),
        clock=clock,
        after_s=0,
    )
    await sweep.turn()
    stock.before["undelivered"] = look
    await sweep.turn()
    await look()
    assert len(gauges) == 4
    assert min(age for age in gauges if age is not None) >= 99


class OneSale:
    def __init__(self, sale: Sale) -> None:
        self.sale = sale

    def all(self) -> tuple[Sale, ...]:
        return (self.sale,)


# --- the keys of ended epochs -----------------------------------------------------------------------------------------


class UnlinkRows:
    def __init__(self, *owed: OwedUnlink) -> None:
        self.left = {it.epoch: it for it in owed}

    async def owed_unlinks(self, due_before_ms: int, limit: int) -> Sequence[OwedUnlink]:
        due = [it for it in self.left.values() if it.due_at_ms <= due_before_ms]
        return sorted(due, key=lambda it: it.due_at_ms)[:limit]

    async def unlinked(self, owed: OwedUnlink, again_at_ms: int | None) -> None:
        if again_at_ms is None:
            del self.left[owed.epoch]
        else:
            self.left[owed.epoch] = replace(owed, due_at_ms=again_at_ms)


def _ended(epoch: int, at_ms: int, segments: int = 2) -> OwedUnlink:
    return OwedUnlink(sale_id=SaleId("sale"), epoch=epoch, segments=segments, ended_at_ms=at_ms, due_at_ms=at_ms)


async def test_an_epoch_is_unlinked_at_once_and_once_more_when_no_call_can_be_under_way() -> None:
    clock = ManualClock()
    rows, stock = UnlinkRows(_ended(2, clock.now_ms(), segments=3)), Seam(cast(Stock, MemoryStock(clock)))
    sweep = UnlinkSweep(cast(SaleStore, rows), cast(Stock, stock), clock)
    assert [await sweep.turn() for _ in range(2)] == [1, 0]
    assert stock.calls["unlink"] == 3
    await clock.advance(LATE_MS / 1000)
    assert [await sweep.turn() for _ in range(2)] == [1, 0]
    assert rows.left == {}
    assert stock.calls["unlink"] == 6


async def test_an_unlink_that_fails_stays_owed_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    rows = UnlinkRows(_ended(2, clock.now_ms()), _ended(3, clock.now_ms()))
    stock = Seam(cast(Stock, MemoryStock(clock)))
    tries: Counter[int] = Counter()

    async def broken(slot: Slot) -> None:
        tries[slot.epoch] += 1
        if slot.epoch == 2:
            await away()

    stock.before["unlink"] = broken
    monkeypatch.setattr("service.core.unlinking.EPOCHS_A_TURN", 1)
    sweep = UnlinkSweep(cast(SaleStore, rows), cast(Stock, stock), clock)
    with pytest.raises(StockUnavailable):
        await sweep.turn()
    assert await sweep.turn() == 1, "the other is not held up"
    stock.heal()
    await clock.advance(LATE_MS / 1000 + 60)
    assert [await sweep.turn() for _ in range(3)] == [1, 1, 0]
    assert set(rows.left) == {2}, "only its first look was had"
