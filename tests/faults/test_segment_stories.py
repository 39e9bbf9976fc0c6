"""A sale in several segments whose count changes at a rebuild: everything is found in its buyer's new home (F34)."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage

pytestmark = [pytest.mark.server, pytest.mark.faults]


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (5, 3)])
async def test_orders_and_messages_of_another_segment_count_find_their_new_home(
    stage: Stage, before: int, after: int
) -> None:
    """Ordered ones are cancelled, queued ones are reserved again, and every unit returns where it can be sold."""
    process = await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=60, segments=before))
    ordered = [await stage.reserve(f"ordered-{number}") for number in range(6)]
    for it in ordered:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    await process.kill("order")
    queued = [await stage.reserve(f"queued-{number}") for number in range(6)]
    await process.cases.sales.change_rules(SALE, {"segments": after}, ACTOR)
    await asyncio.to_thread(stage.server.call, "FLUSHALL")
    sale = await stage.at_home(after_epoch=sale.epoch)
    assert sale.segments == after
    for it in ordered:
        assert (await stage.cancel(it.reservation_id)).code == "cancelled"
    process.start("order")
    for it in queued:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    await stage.cancel(queued[0].reservation_id)
    again = await asyncio.gather(*[stage.reserve(f"ordered-{number}", "again") for number in range(6)])
    assert {it.code for it in again} == {"queued"}
    await stage.quiet()
    assert (await stage.row()).epoch == sale.epoch, "nobody took a slot that is not there for a loss"
    assert (await stage.ledger()).sql.available == 49
