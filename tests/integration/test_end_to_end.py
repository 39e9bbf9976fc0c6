"""A reservation's whole life, on the embedded stack and on the three real servers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from service.core import directory
from service.domain.ids import SaleId
from service.domain.payment import PaymentOutcome
from service.domain.sale import Authority
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_BOTH_STACKS
from tests.fixtures.stage import ACTOR, SALE, Stage, until

pytestmark = [pytest.mark.server, pytest.mark.either_client, ON_BOTH_STACKS]


EVERYTHING = ("order", "timeout", "keeper")


@pytest.fixture(params=["redis", "sql"])
def home(request: pytest.FixtureRequest) -> Authority:
    """Who decides on the sale's stock."""
    return Authority(request.param)


@pytest.fixture
async def shop(stage: Stage) -> Stage:
    """Two processes with everything, and one that only sells."""
    for loops in ((), EVERYTHING, EVERYTHING):
        await stage.process(*loops)
    return stage


async def test_reserve_order_pay(shop: Stage, home: Authority) -> None:
    await shop.sale(rules(wanted=home))
    anna = await shop.reserve("anna")
    assert anna.code == ("queued" if home is Authority.REDIS else "awaiting_payment")
    ordered = await shop.becomes(anna.reservation_id, "awaiting_payment")
    assert ordered.reservation is not None
    assert ordered.reservation.order_no is not None
    assert ordered.reservation.expires_at_ms is not None
    assert await shop.pay(anna.reservation_id) is PaymentOutcome.APPLIED
    assert (await shop.get(anna.reservation_id)).code == "paid"
    again = await shop.reserve("anna")
    assert (again.code, again.replayed) == ("paid", True)
    await shop.quiet()
    ledger = await shop.ledger()
    assert (ledger.sql.paid, ledger.sql.available) == (1, 9)


async def test_a_sale_is_sold_by_every_process_as_soon_as_it_is_open(
    shop: Stage, home: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by those whose view of the sales is older than the sale, or shows it as it was before."""
    monkeypatch.setattr(directory, "STALE_S", 60.0)  # however long a busy machine takes to open a sale
    sales = shop.first.cases.sales
    for process in shop.processes:
        await process.stop("view")
    await sales.create(SALE, rules(wanted=home), ACTOR)
    await shop.processes[1].cases.refresh()
    await sales.open(SALE, warm=True, actor=ACTOR)
    shop.sales.append(SALE)
    for buyer, process in zip(("anna", "bert", "carl"), shop.processes, strict=True):
        assert (await shop.reserve(buyer, at=process)).code in {"queued", "awaiting_payment"}
        process.start("view")
    unknown = await shop.reserve("dora", sale_id=SaleId("unknown"))
    assert unknown.code == "not_found"
    await shop.quiet()


async def test_what_is_not_paid_in_time_is_sold_to_another_buyer(shop: Stage, home: Authority) -> None:
    await shop.sale(rules(stock=1, wanted=home))
    anna = await shop.reserve("anna")
    await shop.becomes(anna.reservation_id, "awaiting_payment")
    bert = await shop.reserve("bert")
    assert (bert.code, bert.final) == ("sold_out", False)
    await shop.jump(900)
    late = await shop.becomes(anna.reservation_id, "cancelled")
    assert late.reason == "payment_timeout"
    # The same key as before: a refusal binds none.
    await until(lambda: _reserves(shop, "bert"), "the unit is for sale again")
    assert await shop.pay(anna.reservation_id) is PaymentOutcome.REFUND_REQUIRED
    await shop.quiet()
    assert (await shop.ledger()).sql.refunds == 1


async def test_the_delay_message_cancels_without_any_sweep(stage: Stage, home: Authority) -> None:
    keeper = await stage.process("keeper")
    await stage.sale(replace(rules(stock=1, wanted=home), payment_window_s=2))
    await keeper.stop("keeper")
    keeper.start("order", "timeout")
    anna = await stage.reserve("anna")
    assert (await stage.becomes(anna.reservation_id, "cancelled")).reason == "payment_timeout"
    await stage.quiet()


async def test_the_same_goods_in_the_next_sale_to_the_same_buyers(shop: Stage, home: Authority) -> None:
    buyers = [f"buyer-{number}" for number in range(5)]
    for sale_id in (SaleId("monday"), SaleId("tuesday")):
        await shop.sale(rules(stock=5, wanted=home), sale_id)
        heard = await asyncio.gather(*[shop.reserve(buyer, sale_id=sale_id) for buyer in buyers])
        assert all(it.is_live for it in heard)
        assert all(str(it.id).startswith(f"{sale_id}.") for it in heard)
    await shop.quiet()


async def test_several_units_at_once_and_a_limit_of_three(shop: Stage, home: Authority) -> None:
    await shop.sale(rules(stock=7, limit=3, wanted=home))
    assert (await shop.reserve("anna", "a", quantity=2)).is_live
    assert (await shop.reserve("anna", "b", quantity=2)).code == "limit_reached"
    assert (await shop.reserve("anna", "c", quantity=1)).is_live
    assert (await shop.reserve("bert", quantity=3)).is_live
    assert (await shop.reserve("carl", quantity=2)).code == "sold_out"
    assert (await shop.reserve("carl", "small", quantity=1)).is_live
    assert (await shop.reserve("dora", quantity=4)).code == "invalid_request"
    await shop.quiet()
    assert (await shop.ledger()).sql.available == 0


@pytest.mark.parametrize("restock", [True, False])
async def test_a_refund_returns_the_unit_only_if_it_is_restocked(
    shop: Stage, home: Authority, *, restock: bool
) -> None:
    await shop.sale(rules(stock=1, wanted=home))
    anna = await shop.reserve("anna")
    await shop.becomes(anna.reservation_id, "awaiting_payment")
    await shop.pay(anna.reservation_id)
    for _ in range(3):
        assert (await shop.refund(anna.reservation_id, restock=restock)).code == "refunded"
    assert (await shop.reserve("bert")).is_live is restock
    await shop.quiet()


async def test_stock_is_adjusted_up_and_down_while_it_sells(shop: Stage, home: Authority) -> None:
    await shop.sale(rules(stock=20, wanted=home))
    sales = shop.first.cases.sales

    async def adjust() -> None:
        for number, delta in enumerate((5, -3, 4, -6)):
            for _ in range(2):
                await sales.adjust(SALE, f"adjustment-{number}", delta, ACTOR)

    # The first 14 leave enough unsold for every decrease, whoever comes first.
    heard, _ = await asyncio.gather(asyncio.gather(*[shop.reserve(f"b-{it}") for it in range(14)]), adjust())
    heard += [await shop.reserve(f"late-{it}") for it in range(10)]
    await shop.quiet()
    ledger = await shop.ledger()
    assert ledger.sql.adjusted == 0
    assert ledger.sql.available == 0
    assert sum(it.is_live for it in heard) == 20


async def test_a_buyer_who_cancels_while_queued_gets_no_order(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna")
    assert (await stage.cancel(anna.reservation_id)).code == "cancelled"
    assert (await stage.cancel(anna.reservation_id)).code == "cancelled"
    bert = await stage.reserve("bert")
    process.start("order")
    await stage.becomes(bert.reservation_id, "awaiting_payment")
    assert (await stage.get(anna.reservation_id)).reason == "buyer_cancelled"
    await stage.quiet()


async def test_a_closed_sale_sells_nothing_until_it_is_reopened(shop: Stage, home: Authority) -> None:
    sale = await shop.sale(rules(stock=2, wanted=home))
    sales = shop.first.cases.sales
    anna = await shop.reserve("anna")
    await sales.close(SALE, ACTOR)
    assert (await shop.reserve("bert")).code == "sale_closed"
    await shop.becomes(anna.reservation_id, "awaiting_payment")
    await sales.open(SALE, warm=False, actor=ACTOR)
    assert (await shop.row()).epoch == sale.epoch
    assert (await shop.reserve("bert")).is_live
    await shop.quiet()


async def test_a_settled_sale_keeps_its_orders_and_nothing_in_redis(shop: Stage, home: Authority) -> None:
    await shop.sale(rules(stock=3, wanted=home))
    sales = shop.first.cases.sales
    paid, unpaid = await shop.reserve("anna"), await shop.reserve("bert")
    await shop.becomes(paid.reservation_id, "awaiting_payment")
    await shop.pay(paid.reservation_id)
    await sales.close(SALE, ACTOR)
    await sales.settle(SALE, ACTOR)

    async def empty() -> bool:
        return (await shop.row()).authority is Authority.SQL and shop.server.call("KEYS", f"*{SALE}*") == []

    await until(empty, "Redis is empty")
    await shop.see()
    assert (await shop.reserve("carl")).code == "sale_closed"
    assert (await shop.get(paid.reservation_id)).code == "paid"
    await shop.jump(900)
    await shop.becomes(unpaid.reservation_id, "cancelled")
    await shop.quiet()


async def test_a_sale_moves_to_sql_and_back_while_it_sells(shop: Stage) -> None:
    sale = await shop.sale(rules(stock=30))
    heard = [await shop.reserve(f"a-{number}") for number in range(10)]
    for wanted in (Authority.SQL, Authority.REDIS):
        await shop.first.cases.sales.change_rules(SALE, {"wanted_authority": wanted}, ACTOR)
        sale = await shop.at_home(after_epoch=sale.epoch)
        heard += [await shop.reserve(f"{wanted}-{number}") for number in range(10)]
    assert all(it.is_live for it in heard)
    again = await shop.reserve("late")
    assert again.code == "sold_out"
    await shop.quiet()
    assert (await shop.ledger()).sql.available == 0


async def test_buyers_without_a_key_find_their_own_reservation_again(shop: Stage) -> None:
    await shop.sale(replace(rules(stock=5), limit_per_buyer=1))
    first = await shop.reserve("anna", None)
    second = await shop.reserve("anna", None)
    assert (second.id, second.replayed) == (first.id, True)
    await shop.quiet()


async def _reserves(stage: Stage, buyer: str) -> bool:
    return (await stage.reserve(buyer)).is_live
