"""Clients that ask again as soon as they have their answer, and the figure of it: for floors, each in a process of its
own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from bench.figures import Figure, Measure, Unit, latency_of
from bench.own_use import OwnUse

Call = Callable[[int], Awaitable[float]]
"""With a number that no other call has. When its answer was there, by the monotonic clock: it may go on after that."""


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, and when it was taken: by the monotonic clock, which all processes of a machine share."""

    figure: Figure
    began_s: float
    ended_s: float


async def closed_loop(call: Call, subject: str, *, clients: int, seconds: float, unit: Unit, each: int = 1) -> Timed:
    """A floor. `each`: so many units are done by a call."""
    latencies_s: list[float] = []
    began_s, own, numbers = time.monotonic(), OwnUse(), iter(range(1 << 40))

    async def client() -> None:
        while (asked_s := time.monotonic()) < began_s + seconds:
            latencies_s.append(await call(next(numbers)) - asked_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    used, ended_s = own.until_now("clients"), time.monotonic()
    figure = Figure(
        subject=subject,
        measure=Measure.FLOOR,
        clients=clients,
        unit=unit,
        count=len(latencies_s) * each,
        seconds=ended_s - began_s,
        latency=latency_of(latencies_s),
        usage=(used,),
    )
    return Timed(figure=figure, began_s=began_s, ended_s=ended_s)
