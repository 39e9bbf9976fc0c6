"""A settled sale is over for good: nothing of it changes any more, and each refusal says why."""

from __future__ import annotations

import pytest

from service.domain.errors import Conflict
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage

pytestmark = [pytest.mark.server, pytest.mark.faults]


async def test_nothing_changes_a_settled_sale(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale(rules(stock=5))
    sales = process.cases.sales
    await sales.close(SALE, ACTOR)
    await sales.settle(SALE, ACTOR)
    for act in (
        sales.open(SALE, warm=False, actor=ACTOR),
        sales.open(SALE, warm=True, actor=ACTOR),
        sales.adjust(SALE, "more", 5, ACTOR),
        sales.change_rules(SALE, {"limit_per_buyer": 9}, ACTOR),
    ):
        with pytest.raises(Conflict) as refused:
            await act
        assert refused.value.conflict == "sale_is_settled"
    found = await stage.row()
    assert (found.initial, found.adjusted, found.rules.limit_per_buyer) == (5, 0, rules().limit_per_buyer)
