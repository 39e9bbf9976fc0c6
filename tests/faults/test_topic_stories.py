"""Topics and groups that are not as wanted: said at start, before a buyer is sold what no order can follow (F24)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from service.bootstrap import create_topics
from service.domain.errors import DropgateError
from tests.fixtures.sql import rules
from tests.fixtures.stage import Process, Stage, until

pytestmark = [pytest.mark.server, pytest.mark.faults]


@pytest.fixture
async def selling(stage: Stage) -> Stage:
    """A sale that is loaded and open; its broker is then broken."""
    await stage.process("keeper")
    await stage.sale()
    return stage


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("DELETE FROM topics WHERE name = 'dropgate-order'", "topic dropgate-order is missing"),
        ("UPDATE topics SET type = 'NORMAL' WHERE name = 'dropgate-order'", "is of type NORMAL, not TRANSACTION"),
    ],
)
async def test_a_process_whose_topic_is_wrong_accepts_nothing_and_says_why(
    selling: Stage, broken: str, said: str
) -> None:
    """F24: not ready, with the remedy; Redis is untouched."""
    process = await selling.process(registered=False)
    repaired = await _break_broker(selling, broken)
    with pytest.raises(DropgateError, match=r"no such topic|of type"):
        await process.cases.producer.turn()
    assert any(said in problem for problem in await process.cases.readiness.missing())
    before = await selling.slot()
    for at in selling.processes:
        assert (await selling.reserve("anna", at=at)).is_unknown
    assert await selling.slot() == before
    await repaired()
    await process.cases.producer.turn()
    await until(lambda: _is_ready(process), "the process is ready again")
    assert (await selling.reserve("anna", at=process)).code == "queued"
    await selling.quiet()


async def test_a_missing_group_shuts_the_gate_and_what_was_sold_until_then_is_not_lost(selling: Stage) -> None:
    """F24: who comes before the process has looked gets an order, by the sweep; who comes after it hears 503."""
    process = selling.first
    await process.stop("readiness")
    repaired = await _break_broker(selling, "DELETE FROM groups WHERE topic = 'dropgate-order'")
    anna = await selling.reserve("anna")
    problems = await process.cases.readiness.missing()
    assert any("has no group dropgate-order-creator" in problem for problem in problems)
    assert (await selling.reserve("bert")).code == "unavailable"
    assert (await selling.slot()).available == 9
    await selling.becomes(anna.reservation_id, "awaiting_payment")
    await repaired()
    assert await _is_ready(process)
    assert (await selling.reserve("bert")).code == "queued"
    await selling.quiet()


async def test_orders_made_later_than_the_payment_window_are_not_stuck(stage: Stage) -> None:
    """F24: the order consumer was away for longer than that: created, and cancelled in its own time."""
    process = await stage.process("keeper")
    await stage.sale(replace(rules(stock=2), payment_window_s=60))
    await process.kill("keeper")
    anna = await stage.reserve("anna")
    await stage.jump(120)
    process.start("order", "keeper")
    ordered = await stage.becomes(anna.reservation_id, "awaiting_payment")
    assert ordered.reservation is not None
    assert (ordered.reservation.expires_at_ms or 0) > stage.clock.now_ms()
    await stage.jump(61)
    assert (await stage.becomes(anna.reservation_id, "cancelled")).reason == "payment_timeout"
    await stage.quiet()
    assert (await stage.slot()).available == 2


async def _is_ready(process: Process) -> bool:
    return not await process.cases.readiness.missing()


async def _break_broker(stage: Stage, statement: str) -> Callable[[], Awaitable[None]]:
    """Somebody's hand in the broker; what undoes it."""
    _write(stage, statement)

    async def repaired() -> None:
        _write(stage, "DELETE FROM topics WHERE name = 'dropgate-order'")
        await create_topics(stage.settings)

    return repaired


def _write(stage: Stage, statement: str) -> None:
    with sqlite3.connect(stage.folder / "broker.db", timeout=10) as connection:
        connection.execute(statement)
    connection.close()
