"""An operator changes the rules of a sale that sells: nobody who was answered before is contradicted (I7)."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.batch import SCHEMA, BatchMessage, Candidate, fingerprint
from service.domain.errors import InvalidRequest
from service.domain.ids import BuyerId, new_batch_id, reservation_id
from service.domain.sale import Sale
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage

pytestmark = [pytest.mark.server, pytest.mark.faults]


@pytest.mark.parametrize(("field", "value"), [("price", 9_990), ("currency", "USD")])
async def test_an_amount_that_a_buyer_was_told_stays(stage: Stage, field: str, value: object) -> None:
    process = await stage.process("keeper")
    await stage.sale(rules(stock=5))
    told = await stage.reserve("anna")
    for act in (process.cases.sales.get, _closed(stage)):
        await act(SALE)
        with pytest.raises(InvalidRequest) as refused:
            await process.cases.sales.change_rules(SALE, {field: value}, ACTOR)
        assert refused.value.field == field
    process.start("order")
    order = await stage.becomes(told.reservation_id, "awaiting_payment")
    assert order.reservation is not None
    assert told.reservation is not None
    assert (order.reservation.amount, order.reservation.currency) == (told.reservation.amount, "EUR")
    await stage.quiet()


def _closed(stage: Stage):
    async def close(_: object) -> Sale:
        return await stage.first.cases.sales.close(SALE, ACTOR)

    return close


async def test_the_price_of_a_sale_that_never_opened_may_change(stage: Stage) -> None:
    process = await stage.process("keeper")
    await process.cases.sales.create(SALE, rules(), ACTOR)
    changed = await process.cases.sales.change_rules(SALE, {"price": 1, "currency": "USD"}, ACTOR)
    assert (changed.rules.price, changed.rules.currency) == (1, "USD")
    await process.cases.sales.warm(SALE, ACTOR)
    assert (await process.cases.sales.change_rules(SALE, {"price": 2}, ACTOR)).rules.price == 2


async def test_two_operators_at_a_time_lose_nothing(stage: Stage) -> None:
    process = await stage.process("keeper")
    await process.cases.sales.create(SALE, rules(), ACTOR)
    sales = process.cases.sales
    changes = ({"price": 1}, {"payment_window_s": 77}, {"limit_per_buyer": 3}, {"sku": "other"})
    await asyncio.gather(*[sales.change_rules(SALE, change, ACTOR) for change in changes])
    found = (await stage.row()).rules
    assert (found.price, found.payment_window_s, found.limit_per_buyer, found.sku) == (1, 77, 3, "other")


@pytest.mark.parametrize("authority", ["redis", "sql"])
async def test_a_longer_queue_deadline_revives_nobody_whom_get_called_unknown(stage: Stage, authority: str) -> None:
    process = await stage.process("keeper")
    sale = await stage.sale(rules(stock=5))
    late = _a_batch_that_nobody_heard_of(sale, stage.clock.now_ms())
    (candidate,) = late.candidates
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    await stage.reserve("whoever meets the loss")
    await stage.at_home(after_epoch=sale.epoch)
    if authority == "sql":
        await process.cases.sales.change_rules(SALE, {"wanted_authority": "sql"}, ACTOR)
        await stage.at_home(after_epoch=sale.epoch + 2)
    await stage.jump(700)
    assert (await stage.get(candidate.reservation_id)).code == "not_found"

    await process.cases.sales.change_rules(SALE, {"queue_deadline_s": 3_600}, ACTOR)
    await stage.see()
    assert (await stage.get(candidate.reservation_id)).code == "not_found", "nor is it in doubt again"
    await stage.publish(late)
    process.start("order")
    await stage.quiet()
    row = (await stage.orders([candidate.reservation_id])).get(candidate.reservation_id)
    assert row is None or row.reason == "not_confirmed"


def _a_batch_that_nobody_heard_of(sale: Sale, now_ms: int) -> BatchMessage:
    """Its half message is in doubt: its process died before it could answer."""
    buyer = BuyerId("late")
    candidate = Candidate(
        reservation_id=reservation_id(SALE, buyer, "k"),
        buyer_id=buyer,
        quantity=1,
        fingerprint=fingerprint(1, None, None),
    )
    return BatchMessage(
        schema=SCHEMA,
        batch_id=new_batch_id(),
        sale_id=SALE,
        segment=0,
        epoch=sale.epoch,
        created_at_ms=now_ms,
        candidates=(candidate,),
    )
