"""The leader's turn over many sales: neither a silent Redis nor a big load nor one refused row holds up the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.memory.stock import MemoryStock
from service.core import authority as road_module
from service.core.authority import AuthorityRoad
from service.core.drain import Drain
from service.core.load import Loader
from service.domain.errors import InvariantBroken, StockUnavailable
from service.domain.ids import SaleId
from service.domain.road import REDIS_AWAY_S
from service.domain.sale import AUTHORITY_TRANSITIONS, Authority, Sale
from service.domain.stock import Slot
from service.ports.messaging import Backlog, Topic, TopicType, Transport
from service.ports.orders import SaleStore, Snapshot
from service.ports.stock import Stock
from tests.fixtures.domain import a_sale
from tests.fixtures.seams import Pause, Seam, away
from tests.fixtures.stock import load

TOPIC = Topic(name="order", type=TopicType.TRANSACTION, group="creator")


class Rows:
    """A sale store in memory. `refuses` are sales whose row SQL cannot take."""

    def __init__(self) -> None:
        self.by_id: dict[SaleId, Sale] = {}
        self.refuses: set[SaleId] = set()
        self.owed: list[tuple[SaleId, int]] = []
        self.big = Pause()
        self.big.go.set()

    async def sales(self) -> Sequence[Sale]:
        return list(self.by_id.values())

    async def change_authority(
        self, sale_id: SaleId, *, leader: str, expected: tuple[Authority, int], to: Authority, now_ms: int
    ) -> Sale | None:
        if sale_id in self.refuses:
            raise InvariantBroken("row", sale_id)
        sale = self.by_id[sale_id]
        if (sale.authority, sale.epoch) != expected:
            return None
        epoch = sale.epoch + AUTHORITY_TRANSITIONS[sale.authority, to]
        self.by_id[sale_id] = replace(sale, authority=to, epoch=epoch, lost=None)
        return self.by_id[sale_id]

    async def snapshot(self, sale_id: SaleId, epoch: int) -> Snapshot | None:
        if sale_id == "sale-0":
            await self.big()
        return Snapshot(available=10, records=[])

    async def owe_unlink(self, sale_id: SaleId, epoch: int, at_ms: int) -> None:
        self.owed.append((sale_id, epoch))


class Broker:
    looks = 0
    undelivered = 0
    blind_s = 0.0
    takes_s = 0.0

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    async def backlog(self, topic: str, group: str) -> Backlog:
        self.looks += 1
        await self.clock.advance(self.takes_s)
        return Backlog(halves=0, undelivered=self.undelivered, blind_s=self.blind_s)


class Leader:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rows = Rows()
        self.memory = MemoryStock(self.clock)
        self.redis = Seam(cast(Stock, self.memory))
        self.broker = Broker(self.clock)
        stock, sales = cast(Stock, self.redis), cast(SaleStore, self.rows)
        self.road = AuthorityRoad(
            sales=sales,
            stock=stock,
            loader=Loader(sales, stock, self.clock),
            drain=Drain(cast(Transport, self.broker), TOPIC, self.clock, timeout_s=45),
            clock=self.clock,
            leader="me",
        )

    async def have(self, count: int, authority: Authority = Authority.REDIS) -> None:
        for number in range(count):
            sale = replace(a_sale(authority=authority), id=SaleId(f"sale-{number}"))
            self.rows.by_id[sale.id] = sale
            if authority is Authority.REDIS:
                await load(self.memory, Slot(sale_id=sale.id, segment=0, epoch=sale.epoch), 10)

    def under(self, authority: Authority) -> set[str]:
        return {sale.id for sale in self.rows.by_id.values() if sale.authority is authority}


@pytest.fixture
async def leader(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Leader]:
    monkeypatch.setattr(road_module, "TURN_S", 0.2)
    leader = Leader()
    yield leader
    await leader.road.close()


async def test_a_silent_redis_is_asked_once_a_turn_for_all_sales(leader: Leader) -> None:
    await leader.have(50)
    leader.redis.before["server_ids"] = away
    await leader.road.turn()
    assert leader.redis.calls == {"server_ids": 1}
    await leader.clock.advance(REDIS_AWAY_S - 0.1)
    await leader.road.turn()
    assert len(leader.under(Authority.REDIS)) == 50
    await leader.clock.advance(0.1)
    await leader.road.turn()
    assert len(leader.under(Authority.SQL)) == 50, "away for all of them alike"


async def test_a_moment_of_silence_is_forgotten(leader: Leader) -> None:
    await leader.have(2)
    for _ in range(3):
        leader.redis.before["server_ids"] = away
        await leader.road.turn()
        await leader.clock.advance(REDIS_AWAY_S - 1)
        leader.redis.heal()
        await leader.road.turn()
    assert len(leader.under(Authority.REDIS)) == 2


async def test_a_server_that_says_who_it_is_and_refuses_scripts_is_away_too(leader: Leader) -> None:
    """As one that reads its data from disk does."""
    await leader.have(3)
    leader.redis.before["count"] = away
    await leader.road.turn()
    await leader.clock.advance(REDIS_AWAY_S)
    await leader.road.turn()
    assert len(leader.under(Authority.SQL)) == 3


async def test_only_the_sale_whose_slot_is_broken_leaves(leader: Leader) -> None:
    await leader.have(3)

    async def broken(slot: Slot) -> None:
        if slot.sale_id == "sale-1":
            raise StockUnavailable("redis", "WRONGTYPE")

    leader.redis.before["count"] = broken
    await leader.road.turn()
    await leader.clock.advance(REDIS_AWAY_S)
    await leader.road.turn()
    assert leader.under(Authority.SQL) == {"sale-1"}


async def test_a_big_load_holds_up_no_other_sale(leader: Leader) -> None:
    await leader.have(1, Authority.SQL)
    leader.rows.big.go.clear()
    async with asyncio.timeout(2):
        await leader.road.turn()
    assert leader.under(Authority.LOADING) == {"sale-0"}
    for number in range(1, 4):
        sale_id = SaleId(f"sale-{number}")
        leader.rows.by_id[sale_id] = replace(a_sale(authority=Authority.SQL), id=sale_id)
    await leader.road.turn()
    assert len(leader.under(Authority.REDIS)) == 3
    leader.rows.big.go.set()
    await leader.road.turn()
    assert len(leader.under(Authority.REDIS)) == 4, "loaded once, not begun again beside itself"


async def test_a_sale_whose_row_sql_refuses_keeps_no_other_from_its_step(leader: Leader) -> None:
    await leader.have(3, Authority.SQL)
    leader.rows.refuses = {SaleId("sale-0")}
    assert await leader.road.turn() == 2
    assert leader.under(Authority.REDIS) == {"sale-1", "sale-2"}


async def test_a_load_that_takes_too_long_is_given_up_and_owes_its_keys(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(road_module, "LOAD_S", 0.05)
    await leader.have(2, Authority.SQL)
    leader.rows.big.go.clear()
    await leader.road.turn()
    assert leader.under(Authority.REDIS) == {"sale-1"}
    assert leader.rows.owed == [("sale-0", 4)]
    leader.rows.big.go.set()
    await leader.road.turn()
    assert len(leader.under(Authority.REDIS)) == 2


async def test_a_bug_ends_the_loop(leader: Leader) -> None:
    await leader.have(1, Authority.SQL)

    async def bug(*_: object) -> None:
        raise KeyError("bug")

    leader.redis.before["stamp"] = bug
    with pytest.raises(KeyError):
        await leader.road.turn()


async def test_a_stop_cuts_off_what_is_under_way(leader: Leader) -> None:
    await leader.have(1, Authority.SQL)
    leader.rows.big.go.clear()
    await leader.road.turn()
    await leader.road.close()
    assert leader.under(Authority.LOADING) == {"sale-0"}
    assert leader.rows.owed == [("sale-0", 4)]


async def test_one_look_at_the_broker_serves_all_sales_but_none_that_began_after_it(leader: Leader) -> None:
    await leader.have(20, Authority.SQL)
    for sale in leader.rows.by_id.values():
        started_ms = leader.clock.now_ms()
        leader.rows.by_id[sale.id] = replace(sale, older_deadline_ms=1, epoch_started_at_ms=started_ms)
    await leader.clock.advance(0.1)
    leader.broker.undelivered = 1
    await leader.road.turn()
    assert leader.broker.looks == 1
    assert len(leader.under(Authority.SQL)) == 20
    leader.broker.undelivered = 0
    await leader.clock.advance(1)
    await leader.road.turn()
    assert len(leader.under(Authority.REDIS)) == 20
    late = replace(a_sale(authority=Authority.SQL), id=SaleId("late"), older_deadline_ms=1)
    leader.rows.by_id[late.id] = replace(late, epoch_started_at_ms=leader.clock.now_ms())
    leader.broker.undelivered = 1
    await leader.clock.advance(0.1)
    await leader.road.turn()
    assert leader.under(Authority.SQL) == {"late"}


async def test_a_broker_that_does_not_see_what_is_put_off_is_empty_only_after_a_while(leader: Leader) -> None:
    leader.broker.blind_s = 6.0
    await leader.have(1, Authority.SQL)
    (sale,) = leader.rows.by_id.values()
    began_ms = leader.clock.now_ms()
    leader.rows.by_id[sale.id] = replace(sale, older_deadline_ms=1, epoch_started_at_ms=began_ms)

    async def look_each_second(seconds: int, undelivered: int = 0) -> set[str]:
        leader.broker.undelivered = undelivered
        for _ in range(seconds):
            await leader.clock.advance(1)
            await leader.road.turn()
        return leader.under(Authority.REDIS)

    assert await look_each_second(4) == set()
    assert await look_each_second(1, undelivered=1) == set(), "it came back: the while begins again"
    assert await look_each_second(6) == set()
    assert await look_each_second(1) == {sale.id}


async def test_looks_with_a_gap_between_them_do_not_make_a_while(leader: Leader) -> None:
    leader.broker.blind_s = 6.0
    await leader.have(1, Authority.SQL)
    (sale,) = leader.rows.by_id.values()
    began_ms = leader.clock.now_ms()
    leader.rows.by_id[sale.id] = replace(sale, older_deadline_ms=1, epoch_started_at_ms=began_ms)
    for _ in range(3):
        await leader.clock.advance(7)
        await leader.road.turn()
    assert leader.under(Authority.REDIS) == set()


async def test_slow_looks_make_a_while_too(leader: Leader) -> None:
    leader.broker.blind_s, leader.broker.takes_s = 6.0, 2.5
    await leader.have(1, Authority.SQL)
    (sale,) = leader.rows.by_id.values()
    began_ms = leader.clock.now_ms()
    leader.rows.by_id[sale.id] = replace(sale, older_deadline_ms=1, epoch_started_at_ms=began_ms)
    for _ in range(4):
        await leader.clock.advance(0.5)
        await leader.road.turn()
    assert leader.under(Authority.REDIS) == {sale.id}
