"""What ends while Redis is being loaded: nothing it owes is lost, and nobody takes the unfinished slot for a loss."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.domain.sale import Authority
from service.domain.stock import Slot
from service.ports.stock import Stock
from tests.fixtures.sql import rules
from tests.fixtures.stage import Stage, until

pytestmark = [pytest.mark.faults, pytest.mark.server]


class HeldBeforeStamp:
    """A stock whose loads, once `hold` is set, wait for `go_on` before they are stamped."""

    def __init__(self, inner: Stock) -> None:
        self._inner = inner
        self.hold = False
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def stamp(self, slot: Slot, *args: Any, **kwargs: Any) -> Any:
        if self.hold:
            await self.go_on.wait()
        return await self._inner.stamp(slot, *args, **kwargs)


async def test_a_cancel_while_redis_is_loaded_gives_the_unit_back_and_leaves_the_gate_alone(stage: Stage) -> None:
    held: list[HeldBeforeStamp] = []

    def wrap(stock: Stock) -> Any:
        held.append(HeldBeforeStamp(stock))
        return held[0]

    await stage.process("keeper", wrap=wrap)
    shop = await stage.process("order")
    sale = await stage.sale(rules(stock=1))
    anna = await stage.reserve("anna", at=shop)
    await stage.becomes(anna.reservation_id, "awaiting_payment")

    held[0].hold = True
    stage.server.restart()

    async def is_loading() -> bool:
        now = await stage.row()
        return now.authority is Authority.LOADING and now.epoch > sale.epoch

    await until(is_loading, "the leader loads")
    assert (await stage.cancel(anna.reservation_id, at=shop)).code == "cancelled"
    held[0].hold = False
    held[0].go_on.set()
    await stage.at_home(after_epoch=sale.epoch)

    async def takes_a_buyer() -> bool:
        return (await stage.reserve("bert", at=shop)).code == "queued"

    await until(takes_a_buyer, "the process that cancelled sells again", 5.0)
    await stage.quiet()
    assert (await stage.row()).epoch == sale.epoch + 2, "one loss, one rebuild"
