"""The ledger says what is under way, and what has been for too long (I5)."""

from __future__ import annotations

import pytest

from service.domain.sale import Authority
from tests.fixtures.sql import rules
from tests.fixtures.stage import SALE, Stage

pytestmark = [pytest.mark.server, pytest.mark.faults]


async def test_a_batch_without_orders_is_under_way_and_after_a_while_a_broken_invariant(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale(rules(stock=5))
    await process.stop("keeper")
    await stage.reserve("anna")
    ledger = await stage.ledger()
    assert ledger.under_way() == ("1 unit is queued", "1 batch is decided and has no orders yet")
    assert ledger.balanced
    await stage.jump(stage.settings.in_doubt_max_s + 1)
    (problem,) = (await stage.ledger()).problems()
    assert problem.startswith("I5: segment 0 has had a batch without orders for ")
    await stage.quiet()


async def test_a_sale_whose_redis_is_not_there_yet_is_not_quiet(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale(rules(stock=5))
    await process.stop("keeper")
    await process.adapters.sales.want_redis(SALE)
    sale = await stage.row()
    assert await process.adapters.sales.acquire_lease("leader", "me", stage.clock.now_ms(), 60_000)
    await process.adapters.sales.change_authority(
        SALE, leader="me", expected=(sale.authority, sale.epoch), to=Authority.SQL, now_ms=stage.clock.now_ms()
    )
    assert (await stage.ledger()).under_way() == ("the sale is on its way from sql to redis",)
