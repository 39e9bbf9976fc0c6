"""What the comparators of the bench decide without a server."""

from __future__ import annotations

import pytest

from bench.strategies.measure import audit
from bench.strategies.patience import Patience
from bench.strategies.redis_side import shares
from bench.strategies.registry import STRATEGIES
from bench.strategies.strategy import Books, NoProduct, Stores, TooBusy

STORES = Stores(redis_url="redis://127.0.0.1:1/0", database_url="mysql://127.0.0.1:1/none")


def books(*orders: str, stock: int = 2, taken: int | None = None) -> Books:
    return Books(stock=stock, orders=frozenset(orders), units_taken=len(orders) if taken is None else taken)


def test_an_audit_is_clean_where_everyone_who_was_told_has_an_order_and_each_unit_one():
    found = audit({"anna", "bert"}, books("anna", "bert"))
    assert found.clean
    assert (found.stock, found.told, found.sold) == (2, 2, 2)


def test_more_orders_than_stock_are_oversold_whatever_the_counter_says():
    found = audit({"anna", "bert", "carl"}, books("anna", "bert", "carl", taken=1))
    assert (found.oversold, found.lost, found.in_doubt) == (1, 0, 0)


def test_who_was_told_and_has_no_order_is_lost_even_if_somebody_else_has_one():
    found = audit({"anna", "bert"}, books("anna", "carl"))
    assert (found.lost, found.oversold, found.in_doubt) == (1, 0, 0)


def test_a_unit_that_was_taken_and_has_no_order_is_in_doubt():
    found = audit({"anna"}, books("anna", taken=2))
    assert (found.lost, found.in_doubt) == (0, 1)


@pytest.mark.parametrize(("stock", "segments"), [(0, 8), (3, 8), (8, 8), (50, 8), (7, 1)])
def test_segments_share_the_whole_stock_evenly(stock: int, segments: int):
    parts = shares(stock, segments)
    assert sum(parts) == stock
    assert len(parts) == segments
    assert max(parts) - min(parts) <= 1


async def test_a_buyer_who_loses_every_race_is_sent_away_in_the_end():
    patience = Patience(0.05)
    with pytest.raises(TooBusy, match="lost each race"):
        await _lose_forever(patience)


async def _lose_forever(patience: Patience) -> None:
    while True:
        await patience.pause()


@pytest.mark.parametrize("name", list(STRATEGIES))
async def test_each_strategy_says_its_name_and_what_it_guarantees_and_sells_nothing_unprepared(name: str):
    strategy = STRATEGIES[name](STORES)
    assert strategy.name == name
    assert strategy.summary.endswith(".")
    with pytest.raises(NoProduct, match=name):
        await strategy.buy("anna")
    await strategy.close()


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_database_without_row_locks_is_refused(name: str):
    with pytest.raises(ValueError, match="sqlite has none"):
        STRATEGIES[name](Stores(redis_url=STORES.redis_url, database_url="sqlite:///orders.db"))
