"""A write whose caller goes, at a deadline or by a cancellation, leaves no lock behind."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.fixtures.sql import SALE, Stores, rules

pytestmark = pytest.mark.faults

QUICK_S = 1.0


async def test_writes_cancelled_at_any_moment_hold_up_nobody(stores: Stores) -> None:
    await stores.sales.create(SALE, rules(), 1)
    moments = random.Random(7)
    for _ in range(100):
        rivals = [asyncio.create_task(stores.sales.acquire_lease("x", "me", 1, 1_000)) for _ in range(3)]
        rivals += [asyncio.create_task(_look(stores)) for _ in range(2)]
        await asyncio.sleep(moments.random() * 0.006)
        for rival in rivals:
            rival.cancel()
        await asyncio.gather(*rivals, return_exceptions=True)
        began_s = time.monotonic()
        assert await stores.sales.acquire_lease("x", "me", 1, 1_000)
        assert time.monotonic() - began_s < QUICK_S


async def _look(stores: Stores) -> bool:
    return bool(await stores.sales.sales())
