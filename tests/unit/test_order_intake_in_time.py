"""The order transaction when SQL is late: a sale's trouble is its own, and what is too much becomes less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.core import sweeps
from service.core.after_commit import AfterCommit, Made
from service.core.claims import BatchClaims, ClaimsFinder
from service.core.directory import SaleDirectory
from service.core.order_intake import OrderIntake
from service.core.order_transaction import Committed, OrderTransaction
from service.core.pace import FULL, PART_S, REMEMBERED_MAX, Pace
from service.domain.batch import BATCH_MAX
from service.domain.errors import StoreTimedOut, StoreUnavailable
from service.domain.ids import BatchId, SaleId
from service.domain.order import Decision
from service.domain.sale import Sale
from tests.fixtures.domain import a_claim, a_sale

NOTHING = Decision(accepted=(), rejected=(), existing=(), owed=())


class Database:
    """Takes `most` candidates a transaction; a sale in `stuck` is never done; `away`: not even a look is answered."""

    def __init__(self, *, most: int = FULL, stuck: str = "", away: bool = False) -> None:
        self.most, self.stuck, self.away = most, stuck, away
        self.tried: list[int] = []
        self.error: StoreUnavailable = StoreTimedOut("sql", "no answer within 10 s")

    async def run(self, batches: Sequence[BatchClaims]) -> Committed:
        count = sum(len(batch.claims) for batch in batches)
        self.tried.append(count)
        if self.away or count > self.most or any(batch.sale.id == self.stuck for batch in batches):
            raise self.error
        return Committed(decisions=dict.fromkeys([batch.sale.id for batch in batches], NOTHING), void=frozenset())

    async def current(self, sale_id: SaleId) -> Sale:
        if self.away:
            raise StoreUnavailable("sql", "no answer")
        return replace(a_sale(), id=sale_id)

    async def tell(self, made: Sequence[Made]) -> None: ...

    def intake(self) -> OrderIntake:
        return OrderIntake(
            directory=cast(SaleDirectory, self),
            claims=cast(ClaimsFinder, self),
            transaction=cast(OrderTransaction, self),
            after_commit=cast(AfterCommit, self),
            clock=ManualClock(),
        )


def _batches(sale: str, count: int, claims: int = 1) -> list[BatchClaims]:
    its = replace(a_sale(), id=SaleId(sale))
    of_batch = tuple(a_claim(f"b-{n}") for n in range(claims))
    return [BatchClaims(sale=its, batch_id=BatchId(f"{sale}-{n}"), claims=of_batch, older=False) for n in range(count)]


async def test_what_is_in_time_is_one_transaction_of_all_sales() -> None:
    database = Database()
    both = _batches("one", 8, BATCH_MAX) + _batches("two", 8, BATCH_MAX)
    assert len((await database.intake().decide_stored(both)).ended()) == 16
    assert database.tried == [FULL]


async def test_a_sale_that_is_stuck_costs_the_others_one_time_out_and_next_time_none() -> None:
    database = Database(stuck="stuck")
    intake, both = database.intake(), _batches("stuck", 1) + _batches("healthy", 3)
    for tried in ([4, 1, 3], [3, 1]):
        database.tried.clear()
        assert (await intake.decide_stored(both)).ended() == {f"healthy-{n}" for n in range(3)}
        assert database.tried == tried
    database.stuck = ""
    for _ in range(12):
        assert len((await intake.decide_stored(both)).ended()) == 4
    database.tried.clear()
    await intake.decide_stored(both)
    assert database.tried == [4], "it is like all others again"


@pytest.mark.parametrize("most", [1_500, 100, 20])
async def test_what_is_too_much_for_the_database_gets_smaller_until_it_goes(most: int) -> None:
    database = Database(most=most)
    intake, ended = database.intake(), set[str]()
    for _ in range(4):
        left = [batch for batch in _batches("big", 16, BATCH_MAX) if batch.batch_id not in ended]
        try:
            ended |= (await intake.decide_stored(left)).ended() if left else set()
        except StoreTimedOut:
            continue
    assert len(ended) == 16


@pytest.mark.parametrize("error", [StoreTimedOut("sql", "no answer"), StoreUnavailable("sql", "2003")])
async def test_a_database_that_is_away_is_asked_once(error: StoreUnavailable) -> None:
    database = Database(away=True)
    database.error = error
    with pytest.raises(StoreUnavailable):
        await database.intake().decide_stored(_batches("one", 8) + _batches("two", 8))
    assert database.tried == [16]


def test_who_is_remembered_is_bounded_and_who_is_quick_is_forgotten() -> None:
    pace = Pace()
    for n in range(REMEMBERED_MAX + 1):
        pace.late(SaleId(f"{n}"), FULL)
    assert not pace.is_slow(SaleId("0"))
    assert pace.most(SaleId("1")) == FULL // 4
    pace.in_time(SaleId("1"), PART_S)
    assert pace.most(SaleId("1")) == FULL // 4, "twice as many had no time"
    pace.in_time(SaleId("1"), 0.1)
    pace.in_time(SaleId("1"), 0.1)
    assert not pace.is_slow(SaleId("1"))


def test_a_sweep_s_transactions_are_bounded_by_orders() -> None:
    batches = _batches("big", 64, BATCH_MAX)
    parts = list(sweeps._parts(batches))
    assert [batch for part in parts for batch in part] == batches
    assert max(sum(len(it.claims) for it in part) for part in parts) <= sweeps.ORDERS_A_TRANSACTION
    assert len(list(sweeps._parts(_batches("small", 64)))) == 1
