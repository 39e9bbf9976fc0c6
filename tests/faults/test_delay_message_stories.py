"""Delay messages that are blocked, purged, or early: the end of a payment window does not depend on them (F21)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest

from service.adapters.embedded.producer import EmbeddedPublisher
from service.adapters.embedded.transport import FILE_NAME
from service.core.ending import EXTENSION_S
from service.domain.errors import BrokerUnavailable
from service.domain.ids import ReservationId
from service.domain.reservation import Status
from tests.fixtures.stage import Stage, until
from tests.fixtures.unpaid import WINDOW_S, shop_with_orders, statuses

pytestmark = [pytest.mark.faults, pytest.mark.server]


async def test_orders_expire_though_the_delay_topic_takes_no_message(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blocked(*_: object) -> None:
        raise BrokerUnavailable("broker", "the delay topic is blocked")

    monkeypatch.setattr(EmbeddedPublisher, "publish", blocked)
    ids = await shop_with_orders(stage, 50)
    await expire_by_the_sweep_alone(stage, ids)


async def test_orders_expire_though_the_delay_messages_were_purged(stage: Stage) -> None:
    ids = await shop_with_orders(stage, 50)
    with closing(sqlite3.connect(stage.folder / FILE_NAME, timeout=10, isolation_level=None)) as broker:
        (scheduled,) = broker.execute(
            "SELECT count(*) FROM messages WHERE topic = ?", (stage.topics.payment_timeout.name,)
        ).fetchone()
        assert scheduled > 0
        broker.execute("PRAGMA foreign_keys = OFF")
        for table in ("deliveries", "messages"):
            broker.execute(
                f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM messages WHERE topic = ?)",
                (stage.topics.payment_timeout.name,),
            )
    await expire_by_the_sweep_alone(stage, ids)


async def expire_by_the_sweep_alone(stage: Stage, ids: Sequence[ReservationId]) -> None:
    await stage.jump(WINDOW_S + 1)
    stage.first.start("timeout", "keeper")

    async def all_cancelled() -> bool:
        return await statuses(stage, ids) == {Status.CANCELLED: len(ids)}

    await until(all_cancelled, "the sweep has cancelled them all")
    await stage.quiet()
    assert (await stage.slot()).available == len(ids)


# --- a started payment ------------------------------------------------------------------------------------------------


async def test_a_started_payment_extends_the_window_once(stage: Stage) -> None:
    (id_,) = await shop_with_orders(stage, 1)
    await stage.jump(WINDOW_S - 1)
    first = await stage.first.cases.endings.start_payment(id_)
    await stage.jump(10)
    again = await stage.first.cases.endings.start_payment(id_)
    assert again.expires_at_ms == first.expires_at_ms

    # Its first time is over: the delay message and the sweep come, and leave it alone.
    stage.first.start("timeout", "keeper")

    async def came_and_waits() -> bool:
        (due_ms,) = await due_at(stage)
        return abs(due_ms - (first.expires_at_ms or 0)) < 1_000

    await until(came_and_waits, "the delay message waits for the new end")
    await stage.becomes(id_, "awaiting_payment")
    await stage.jump(EXTENSION_S)
    late = await stage.becomes(id_, "cancelled")
    assert late.reason == "payment_timeout"
    await stage.quiet()


async def due_at(stage: Stage) -> list[int]:
    with closing(sqlite3.connect(stage.folder / FILE_NAME, timeout=10)) as broker:
        rows = broker.execute(
            "SELECT due_at_ms FROM deliveries JOIN messages USING (seq) WHERE messages.topic = ?",
            (stage.topics.payment_timeout.name,),
        ).fetchall()
    return [at_ms for (at_ms,) in rows]
