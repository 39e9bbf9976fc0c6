"""Clients in a closed loop: how many calls there are at a time, what they count for, and how long each took."""

from __future__ import annotations

import asyncio
import time

from bench.closed_loop import closed_loop
from bench.figures import Measure

CALL_S, SECONDS = 0.01, 0.1


async def test_as_many_calls_as_clients_are_under_way_and_each_has_a_number_of_its_own() -> None:
    under_way, most, numbers = 0, 0, []

    async def call(number: int) -> float:
        nonlocal under_way, most
        numbers.append(number)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(CALL_S)
        under_way -= 1
        return time.monotonic()

    timed = await closed_loop(call, "somebody", clients=4, seconds=SECONDS, unit="rows", each=128)
    assert most == 4
    assert numbers == list(range(len(numbers)))
    assert under_way == 0, "a call that has begun is waited for, and counts"
    figure = timed.figure
    assert (figure.measure, figure.clients, figure.unit, figure.count) == (Measure.FLOOR, 4, "rows", 128 * len(numbers))
    assert figure.seconds == timed.ended_s - timed.began_s >= SECONDS
    (used,) = figure.usage
    assert used.cores < 1, "clients that wait use little"
    assert used.resident_mb > 1


async def test_a_call_that_goes_on_after_its_answer_took_only_until_then() -> None:
    async def call(_: int) -> float:
        answered_s = time.monotonic()
        await asyncio.sleep(CALL_S)
        return answered_s

    latency = (await closed_loop(call, "somebody", clients=1, seconds=SECONDS, unit="messages")).figure.latency
    assert latency is not None
    assert latency.p50_ms < CALL_S * 1_000
