"""`dropgate keeper`: the leader's loops over core's sweeps and the road of authority (design §3.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from consumers.loop import Turn, take_turns
from service.core.leadership import Leadership
from service.observability.actions import Action
from service.observability.log import log
from service.ports.clock import Clock


@dataclass(frozen=True, kw_only=True)
class KeeperLoop:
    """`full`: a turn that did so much is followed by the next at once. `close`: ends what its turns left under way."""

    name: str
    turn: Turn
    interval_s: float
    full: int | None = None
    close: Callable[[], Awaitable[None]] | None = None


async def run(loops: list[KeeperLoop], leadership: Leadership, *, stop: asyncio.Event, clock: Clock) -> None:
    """All loops side by side; each turn only while this process leads. The death of one ends them all."""
    log(Action.STARTED, loop="keeper")
    try:
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(
                    take_turns(
                        loop.name,
                        _while_leading(loop.turn, leadership),
                        interval_s=loop.interval_s,
                        stop=stop,
                        clock=clock,
                        again_if_full=loop.full,
                    ),
                    name=f"keeper:{loop.name}",
                )
    finally:
        for loop in loops:
            if loop.close is not None:
                await loop.close()
        await leadership.release()


def _while_leading(turn: Turn, leadership: Leadership) -> Turn:
    async def led() -> object:
        return await turn() if await leadership.hold() else 0

    return led
