"""What ends while Redis is being loaded: nothing it owes is lost, and nobody takes the unfinished slot for a loss."""

from __future__ import annotations

import pytest

from service.domain.sale import Authority
from tests.fixtures.seams import Pause
from tests.fixtures.sql import rules
from tests.fixtures.stage import Stage, until

pytestmark = [pytest.mark.faults, pytest.mark.server]


async def test_a_cancel_while_redis_is_loaded_gives_the_unit_back_and_leaves_the_gate_alone(stage: Stage) -> None:
    leader = await stage.process("keeper")
    shop = await stage.process("order")
    sale = await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna", at=shop)
    await stage.becomes(anna.reservation_id, "awaiting_payment")

    before_stamp = leader.seam.before["stamp"] = Pause()
    stage.server.restart()

    async def is_loading() -> bool:
        now = await stage.row()
        return now.authority is Authority.LOADING and now.epoch > sale.epoch

    await until(is_loading, "the leader loads")
    assert (await stage.cancel(anna.reservation_id, at=shop)).code == "cancelled"
    before_stamp.go.set()
    await stage.at_home(after_epoch=sale.epoch)

    async def takes_a_buyer() -> bool:
        return (await stage.reserve("bert", at=shop)).code == "queued"

    await until(takes_a_buyer, "the process that cancelled sells again", 5.0)
    await stage.quiet()
    assert (await stage.row()).epoch == sale.epoch + 2, "one loss, one rebuild"
