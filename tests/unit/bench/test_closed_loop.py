"""Clients in a closed loop: how many calls there are at a time, what they count for, and how long each took."""

from __future__ import annotations

import asyncio
import time

import pytest

from bench.closed_loop import closed_loop
from bench.doubts import LIMITED_AT, contradicted, limited
from bench.figures import Measure, Usage

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
    figure, counted = timed.figure, 128 * (len(numbers) - 4)
    assert (figure.measure, figure.clients, figure.unit, figure.count) == (Measure.FLOOR, 4, "rows", counted)
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


async def test_the_call_that_makes_a_connection_is_not_timed() -> None:
    async def call(number: int) -> float:
        await asyncio.sleep(20 * CALL_S if number < 3 else CALL_S)
        return time.monotonic()

    latency = (await closed_loop(call, "somebody", clients=3, seconds=SECONDS, unit="rows")).figure.latency
    assert latency is not None
    assert latency.p999_ms < 15 * CALL_S * 1_000


async def test_a_client_without_an_answer_in_time_is_said_and_its_wait_counts() -> None:
    async def call(number: int) -> float:
        await asyncio.sleep(3 * SECONDS if number == 2 else CALL_S)
        return time.monotonic()

    figure = (await closed_loop(call, "somebody", clients=2, seconds=SECONDS, unit="rows")).figure
    assert figure.note == "1 of 2 clients had no answer in the measured time"
    assert figure.latency is not None
    assert figure.latency.p999_ms > 3 * SECONDS * 900


async def test_clients_that_use_a_whole_core_may_be_the_limit_and_say_so() -> None:
    async def call(_: int) -> float:
        ends_s = time.process_time() + CALL_S
        while time.process_time() < ends_s:
            pass
        return time.monotonic()

    figure = (await closed_loop(call, "somebody", clients=1, seconds=SECONDS, unit="rows")).figure
    (used,) = figure.usage
    assert ("it may be the limit" in figure.note) == (used.cores > LIMITED_AT)


@pytest.mark.parametrize(("cores", "said"), [(0.9, ""), (0.91, "the engine used 0.91 of a core: it may be the limit")])
def test_a_process_that_asks_may_be_the_limit_beyond_nine_tenths_of_a_core(cores: float, said: str) -> None:
    assert limited(Usage(process="engine", cores=cores, resident_mb=1.0)) == said


@pytest.mark.parametrize(("under_way", "doubtful"), [(None, False), (80, False), (79, True), (125, False), (126, True)])
def test_a_rate_and_a_wait_that_do_not_make_up_the_clients_are_said(under_way: float | None, doubtful: bool) -> None:
    assert bool(contradicted(under_way, 100)) is doubtful
