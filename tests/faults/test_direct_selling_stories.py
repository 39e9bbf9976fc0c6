"""Sales that are at home on SQL: the same answers as from Redis, and one request's trouble is its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.adapters.sql.sale_transaction import SqlSaleTransaction
from service.core.direct import CONCURRENT_TRANSACTIONS
from service.domain.errors import Conflict, NotFound, RowRefused
from service.domain.ids import BuyerId, SaleId, reservation_id
from service.domain.sale import Authority
from tests.fixtures.sql import rules
from tests.fixtures.stage import SALE, Stage

pytestmark = [pytest.mark.server, pytest.mark.faults]


async def _sql_sale(stage: Stage, *, stock: int = 5, limit: int = 1, sale_id: SaleId = SALE) -> None:
    await stage.sale(rules(stock=stock, limit=limit, wanted=Authority.SQL), sale_id)


async def test_without_a_key_a_buyer_gets_the_live_reservation_again(stage: Stage) -> None:
    """Design §5; until it has ended. With a key, or a higher limit, the refusal names the reservation that is held."""
    await stage.process("keeper")
    await _sql_sale(stage)
    first = await stage.reserve("anna", None)
    again = await stage.reserve("anna", None)
    assert (again.code, again.id, again.replayed) == ("awaiting_payment", first.id, True)
    keyed = await stage.reserve("anna", "k")
    assert keyed.code == "limit_reached"
    assert isinstance(keyed.error, Conflict)
    assert keyed.error.held_reservation_id == first.id
    await stage.cancel(first.reservation_id)
    other = await stage.reserve("anna", None)
    assert (other.code, other.replayed) == ("awaiting_payment", False)
    assert other.id != first.id
    together = await asyncio.gather(*[stage.reserve("bert", None) for _ in range(20)])
    assert len({it.id for it in together}) == 1
    assert sum(not it.replayed for it in together) == 1
    await stage.quiet()


async def test_one_request_that_sql_refuses_costs_the_others_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await stage.process("keeper", lanes=1)
    await _sql_sale(stage, stock=50)
    poison = reservation_id(SALE, BuyerId("poison"), "k")
    insert = SqlSaleTransaction.insert_orders

    async def refuse(self: SqlSaleTransaction, new: Any) -> None:
        if any(order.id == poison for order in new):
            raise RowRefused("a value that the column cannot hold")
        await insert(self, new)

    monkeypatch.setattr(SqlSaleTransaction, "insert_orders", refuse)
    buyers = [*(f"b-{number}" for number in range(20)), "poison", *(f"c-{number}" for number in range(20))]
    heard = await asyncio.gather(*[stage.reserve(buyer, at=process) for buyer in buyers])
    codes = {buyer: it.code for buyer, it in zip(buyers, heard, strict=True)}
    assert codes.pop("poison") not in {"awaiting_payment", "queued", "sold_out"}
    assert set(codes.values()) == {"awaiting_payment"}
    monkeypatch.undo()
    await stage.quiet()


async def test_a_sale_whose_row_is_locked_holds_up_no_other_sale(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await stage.process("keeper")
    await _sql_sale(stage)
    await _sql_sale(stage, sale_id=SaleId("other"))
    direct = process.cases.reserve._direct
    release = asyncio.Event()
    decide = direct._decide

    async def stuck(sale: Any, *rest: Any) -> Any:
        if sale.id == SALE:
            await release.wait()
        return await decide(sale, *rest)

    monkeypatch.setattr(direct, "_decide", stuck)
    waiting = [asyncio.create_task(stage.reserve(f"b-{number}")) for number in range(CONCURRENT_TRANSACTIONS + 1)]
    await asyncio.sleep(0.05)
    assert (await stage.reserve("anna", sale_id=SaleId("other"))).code == "awaiting_payment"
    assert not any(task.done() for task in waiting)
    release.set()
    assert {(await task).code for task in waiting} == {"awaiting_payment"}
    await stage.quiet()


async def test_a_sale_that_is_gone_when_its_batch_begins_is_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """404 as any other request for it, not a bug and its 503."""
    process = await stage.process("keeper")
    await stage.sale()
    directory = process.cases.directory
    selling, looks = directory.selling, 0

    def gone_at_the_second_look(sale_id: SaleId) -> Any:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise NotFound("sale", sale_id)
        return selling(sale_id)

    monkeypatch.setattr(directory, "selling", gone_at_the_second_look)
    heard = await stage.reserve("anna")
    assert isinstance(heard.error, NotFound)
    monkeypatch.undo()
    await stage.quiet()
