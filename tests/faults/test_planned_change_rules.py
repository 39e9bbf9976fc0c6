"""Rules that a planned change of authority needs, each without any loss of Redis."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.sale import Authority
from service.domain.stock import Lost
from tests.fixtures.seams import Pause
from tests.fixtures.sql import rules
from tests.fixtures.stage import ACTOR, SALE, Stage, until

pytestmark = [pytest.mark.server, pytest.mark.faults]


async def test_a_sleeper_that_wakes_after_a_planned_change_deducts_nothing(stage: Stage) -> None:
    """It slept between the gate and its reserve call. The slots lost their stamp before the authority changed."""
    await stage.process("keeper", "order")
    sleeper = await stage.process()
    sale = await stage.sale(rules(stock=2))
    pause = Pause()
    sleeper.seam.before["reserve"] = pause
    replies: list[object] = []

    async def hear(reply: object) -> object:
        replies.append(reply)
        return reply

    sleeper.seam.after["reserve"] = hear
    asleep = asyncio.create_task(stage.reserve("anna", at=sleeper))
    await pause.arrived.wait()
    await stage.first.cases.sales.change_rules(SALE, {"wanted_authority": Authority.SQL}, ACTOR)
    await until(lambda: _is_sql(stage, sale.epoch), "the authority has changed")
    pause.go.set()
    heard = await asleep
    assert [type(reply) for reply in replies] == [Lost], "the old keys must not look in order to anybody"
    assert heard.code == "outcome_unknown"
    await stage.quiet()


async def test_who_hears_closed_is_in_no_half_message(stage: Stage) -> None:
    """So nothing of the refused request can become an order later, whatever happens to the authority."""
    await stage.process("keeper", "order")
    sale = await stage.sale(rules(stock=2))
    await stage.first.cases.sales.close(SALE, ACTOR)
    await stage.see()
    heard = await stage.reserve("anna")
    assert heard.code == "sale_closed"
    backlog = await stage.backlog()
    assert (backlog.halves, backlog.undelivered) == (0, 0)
    await stage.first.cases.sales.change_rules(SALE, {"wanted_authority": Authority.SQL}, ACTOR)
    await until(lambda: _is_sql(stage, sale.epoch), "the authority has changed")
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 2


async def _is_sql(stage: Stage, after_epoch: int) -> bool:
    row = await stage.row()
    return row.authority is Authority.SQL and row.epoch > after_epoch
