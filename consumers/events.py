"""`dropgate consume events`: the outbox leaves for the events topic, by one process at a time so that order is kept."""

from __future__ import annotations

import asyncio

from consumers.loop import take_turns
from service.core.leadership import Leadership
from service.core.outbox import EVENTS_A_TURN, OutboxRelay
from service.ports.clock import Clock

INTERVAL_S = 0.1
"""How late an event leaves at most, when nothing else waits."""


async def run(relay: OutboxRelay, leadership: Leadership, *, stop: asyncio.Event, clock: Clock) -> None:
    async def turn() -> int:
        return await relay.turn() if await leadership.hold() else 0

    try:
        await take_turns("outbox", turn, interval_s=INTERVAL_S, stop=stop, clock=clock, again_if_full=EVENTS_A_TURN)
    finally:
        await leadership.release()
