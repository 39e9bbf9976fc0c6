"""Clients that ask again as soon as they have their answer, and the figure of it: for floors, each in a process of its
own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from bench import doubts
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
    """A floor. `each`: so many units are done by a call. Each client has made one call before that is not counted, so
    that it has its connection. Whatever was begun is waited for, and counts, with the time that it took."""
    latencies_s: list[float] = []
    numbers = iter(range(1 << 40))
    await asyncio.gather(*(call(next(numbers)) for _ in range(clients)))
    began_s, own = time.monotonic(), OwnUse()

    async def client() -> bool:
        """Whether it had an answer in time."""
        in_time = False
        while (asked_s := time.monotonic()) < began_s + seconds:
            answered_s = await call(next(numbers))
            latencies_s.append(answered_s - asked_s)
            in_time = in_time or answered_s <= began_s + seconds
        return in_time

    in_time = await asyncio.gather(*(client() for _ in range(clients)))
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
        note=doubts.joined((doubts.limited(used), doubts.starved(in_time.count(False), clients))),
    )
    return Timed(figure=figure, began_s=began_s, ended_s=ended_s)
