"""The manual clock: time passes only when a test says so, and sleepers wake at their own moment."""

from __future__ import annotations

import asyncio
import time

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.system_clock import SystemClock


async def test_fifteen_minutes_pass_in_one_call() -> None:
    clock = ManualClock(now_ms=1_000)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now_ms()))

    tasks = [asyncio.create_task(sleeper(name, s)) for name, s in (("late", 900), ("early", 1), ("never", 901))]
    await asyncio.sleep(0)
    assert clock.sleeping == 3
    await clock.advance(900)
    assert woken == [("early", 2_000), ("late", 901_000)]
    assert (clock.now_ms(), clock.monotonic_s(), clock.sleeping) == (901_000, 900.0, 1)
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    await clock.advance(60)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleeping == 0
    await clock.advance(10)


async def test_a_sleep_of_nothing_only_yields() -> None:
    await ManualClock().sleep(0)


async def test_its_offset_takes_redis_time_to_its_own() -> None:
    clock = ManualClock()
    await clock.advance(3_600)
    there = time.time_ns() // 1_000_000 + clock.offset_ms()
    assert abs(there - clock.now_ms()) < 1_000


async def test_the_machines_clock_has_no_offset() -> None:
    clock = SystemClock()
    assert clock.offset_ms() == 0
    assert abs(clock.now_ms() - time.time() * 1000) < 1_000
    before = clock.monotonic_s()
    await clock.sleep(0.001)
    assert clock.monotonic_s() > before
