"""`dropgate consume order`: batch messages become orders."""

from __future__ import annotations

import asyncio

from consumers.loop import consume
from service.core.order_intake import OrderIntake
from service.ports.clock import Clock
from service.ports.messaging import Topic, Transport

BATCHES_A_TRANSACTION = 16
"""Messages a receive, and so batches a transaction: two of 2,048 orders, side by side, are what memory is left for."""
INVISIBLE_S = 30.0
"""Longer than all transactions of a receive (COMMIT_S) and what follows them (AFTER_COMMIT_S); a dead consumer's
messages come again after it. One from a poll that outlived its `receive` may be handed out with little of it left: a
transport drops it only in the last of it (`stale_margin_s`). What then comes twice is met by its rows."""


async def run(
    transport: Transport,
    topic: Topic,
    intake: OrderIntake,
    *,
    stop: asyncio.Event,
    clock: Clock,
    opened: asyncio.Event | None = None,
) -> None:
    group = topic.group or topic.name
    await consume(
        group,
        lambda: transport.consumer(topic.name, group, invisible_s=INVISIBLE_S),
        intake.process,
        max_messages=BATCHES_A_TRANSACTION,
        stop=stop,
        clock=clock,
        opened=opened,
    )
