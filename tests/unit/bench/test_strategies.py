"""What the comparators of the bench decide without a server."""

from __future__ import annotations

import asyncio

import pytest

from bench.figures import Measure
from bench.plan import DEFAULT_GROUPS, Options
from bench.steps import bare_steps
from bench.strategies.measure import SOLD_OUT, UNITS_LEAST, YOURS, at_its_pace, audit, timed
from bench.strategies.patience import Patience
from bench.strategies.redis_side import shares
from bench.strategies.registry import STRATEGIES
from bench.strategies.strategy import Books, NoProduct, Product, Stores, TooBusy, new_product

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


class Shelf:
    """Sells from a number in this process; each purchase takes `buy_s`. Keeps the books of every product."""

    name, summary = "shelf", "A number."
    product: Product | None = None

    def __init__(self, buy_s: float) -> None:
        self.buy_s = buy_s
        self.sold: list[set[str]] = []

    async def prepare(self, stock: int) -> None:
        self.product = new_product(stock)
        self.sold.append(set())

    async def join(self, product: Product) -> None:
        self.product = product

    async def buy(self, buyer: str) -> bool:
        assert self.product is not None
        await asyncio.sleep(self.buy_s)
        if len(self.sold[-1]) == self.product.stock:
            return False
        self.sold[-1].add(buyer)
        return True

    async def settle(self) -> None: ...

    async def books(self) -> Books:
        assert self.product is not None
        sold = frozenset(self.sold[-1])
        return Books(stock=self.product.stock, orders=sold, units_taken=len(sold))

    async def close(self) -> None: ...


async def test_a_strategy_sells_a_first_product_that_is_not_counted_and_then_as_much_as_its_pace_allows():
    shelf = Shelf(0.01)
    taken = await at_its_pace(shelf, clients=8, warm_s=0.5, seconds=1.0)
    figure = taken.figure
    warmed_up, measured = (len(sold) for sold in shelf.sold)
    assert warmed_up > 100
    assert figure.count == measured == figure.audit.stock == pytest.approx(2 * warmed_up, rel=0.1)  # type: ignore[union-attr]
    assert figure.answers == {YOURS: measured, SOLD_OUT: measured // 2}
    assert figure.seconds > 1.0
    assert taken.ended_s - taken.began_s == pytest.approx(figure.seconds), "the first product is not in its time"
    (used,) = figure.usage
    assert 0 < used.cores < 1.5
    assert used.resident_mb > 1


async def test_a_strategy_that_is_slower_than_it_was_is_asked_no_longer_than_twice_its_time():
    class Tires(Shelf):
        async def settle(self) -> None:
            self.buy_s = 0.2

    figure = (await at_its_pace(Tires(0.005), clients=4, warm_s=0.5, seconds=0.5)).figure
    assert figure.seconds == pytest.approx(1.0)
    assert 0 < figure.count < figure.audit.stock  # type: ignore[union-attr]
    assert "buyers had asked after 1 s" in figure.note


async def test_whoever_has_asked_when_the_time_is_up_is_waited_for_and_audited_but_not_in_the_rate():
    shelf = Shelf(0.2)
    figure = (await timed(shelf, stock=100, buyers=100, clients=3, asked_s=0.5)).figure
    assert len(shelf.sold[-1]) == 9
    assert (figure.count, figure.seconds, figure.audit) == (6, 0.5, audit(shelf.sold[-1], await shelf.books()))


async def test_a_strategy_that_sells_next_to_nothing_still_has_a_product_to_run_out_of():
    figure = (await at_its_pace(Shelf(0.4), clients=1, warm_s=0.0, seconds=0.5)).figure
    assert figure.audit is not None
    assert figure.audit.stock == UNITS_LEAST
    assert figure.measure is Measure.ACCEPT


def test_every_strategy_is_measured_wherever_clients_compete_and_have_a_connection_each():
    options = Options(groups=DEFAULT_GROUPS, clients=(1, 16, 64, 256, 1_000), repeats=1, warm_s=1, seconds=1, soak_s=1)
    names = [step.name for step in bare_steps(None, options) if step.name.startswith("strategy")]  # type: ignore[arg-type]
    assert names == [f"strategy {name}, {clients} clients" for name in STRATEGIES for clients in (16, 64, 256)]


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
