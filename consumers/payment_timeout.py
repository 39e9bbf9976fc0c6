"""`dropgate consume timeout`: delay messages cancel what was not paid."""

from __future__ import annotations

import asyncio

from consumers.loop import consume
from service.core.expiry import PaymentExpiry
from service.ports.clock import Clock
from service.ports.messaging import Topic, Transport

MESSAGES_A_RECEIVE = 16
INVISIBLE_S = 30.0
"""Longer than a receive may take (PROCESS_S), whatever is stuck, and the margin that a transport keeps of it."""


async def run(
    transport: Transport,
    topic: Topic,
    expiry: PaymentExpiry,
    *,
    stop: asyncio.Event,
    clock: Clock,
    opened: asyncio.Event | None = None,
) -> None:
    group = topic.group or topic.name
    await consume(
        group,
        lambda: transport.consumer(topic.name, group, invisible_s=INVISIBLE_S),
        expiry.process,
        max_messages=MESSAGES_A_RECEIVE,
        stop=stop,
        clock=clock,
        opened=opened,
    )
