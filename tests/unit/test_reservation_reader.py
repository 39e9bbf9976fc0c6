"""GET's order of looks (design §3.3): the clock first, SQL, Redis, and SQL again before a 404."""

from __future__ import annotations

from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.core.directory import SaleDirectory
from service.core.reservations import ReservationReader
from service.domain.errors import NotFound, OutcomeUnknown
from service.domain.ids import BuyerId, ReservationId, reservation_id
from service.domain.order import Order
from service.domain.sale import Authority, Sale, SaleStatus
from service.domain.stock import Record, Slot
from service.ports.orders import OrderStore
from service.ports.stock import Stock
from tests.fixtures.domain import a_sale

DEADLINE_MS = 1_800_000_000_000
SALE = a_sale(status=SaleStatus.OPEN, authority=Authority.REDIS, older_deadline_ms=DEADLINE_MS)
ID = reservation_id(SALE.id, BuyerId("anna"), "k")


class Stores:
    """Every store at once. `slow_s` passes on the clock during each look; `appears` is a row that comes late."""

    def __init__(self, clock: ManualClock, *, slow_s: float = 0, appears: Order | None = None) -> None:
        self.clock = clock
        self.slow_s = slow_s
        self.appears = appears
        self.looks: list[str] = []

    async def order(self, _: ReservationId) -> Order | None:
        self.looks.append("sql")
        await self.clock.advance(self.slow_s)
        return self.appears if self.looks.count("sql") > 1 else None

    async def find(self, _: Slot, __: object) -> dict[ReservationId, Record]:
        self.looks.append("redis")
        await self.clock.advance(self.slow_s)
        return {}

    async def current(self, _: object) -> Sale:
        return SALE


def reader(stores: Stores) -> ReservationReader:
    directory, stock, orders = cast(SaleDirectory, stores), cast(Stock, stores), cast(OrderStore, stores)
    return ReservationReader(directory, stock, orders, stores.clock, margin_ms=30_000)


async def test_the_clock_is_read_before_the_stores() -> None:
    """What was in time when GET began may have become an order while GET looked: no 404."""
    stores = Stores(ManualClock(DEADLINE_MS - 1), slow_s=3600)
    with pytest.raises(OutcomeUnknown):
        await reader(stores).get(ID)


async def test_long_after_the_deadline_an_unknown_id_is_not_found() -> None:
    stores = Stores(ManualClock(DEADLINE_MS + 86_400_000))
    with pytest.raises(NotFound):
        await reader(stores).get(ID)
    assert stores.looks == ["sql", "redis", "sql"]
