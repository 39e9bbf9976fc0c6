"""Clients of the engine without HTTP: what is counted, and the waits that go with it."""

from __future__ import annotations

import asyncio

import pytest

from bench.engine.clients import EngineSpec, at_full_speed
from service.core.reserve import ReserveRequest
from service.domain.errors import Conflict

CLIENTS, WAITING = 10, 6


class Desk:
    """Answers after `slow_s`; those who come first, and are more than it likes, only when it is told to let them go."""

    def __init__(self, *, keeps: int = 0, slow_s: float = 0.005, sells: int = 1 << 40) -> None:
        self.left_to_keep = keeps
        self.slow_s = slow_s
        self.left = sells
        self.let_go = asyncio.Event()

    async def reserve(self, request: ReserveRequest) -> None:
        self.left_to_keep -= 1
        if self.left_to_keep >= 0:
            await self.let_go.wait()
        await asyncio.sleep(self.slow_s)
        self.left -= 1
        if self.left < 0:
            raise Conflict("sold_out", sale_id=request.sale_id)


def spec(**changes: object) -> EngineSpec:
    return EngineSpec(**{"sale": "vinyl", "clients": CLIENTS, "warm_s": 0.2, "seconds": 0.5, **changes})  # type: ignore[arg-type]


async def test_as_many_are_under_way_as_there_are_clients_and_none_starves() -> None:
    found = await at_full_speed(Desk(), spec())
    assert found.starved == 0
    assert found.under_way == pytest.approx(CLIENTS, rel=0.15)
    assert found.answers["accepted"] < len(found.told), "the warm-up is not counted; who heard in it was told"


async def test_clients_that_wait_since_the_warm_up_are_said_and_their_waits_are_among_the_latencies() -> None:
    desk = Desk(keeps=WAITING)
    asyncio.get_running_loop().call_later(1.0, desk.let_go.set)
    found = await at_full_speed(desk, spec())
    assert found.starved == WAITING
    assert found.under_way == pytest.approx(CLIENTS - WAITING, rel=0.15)
    assert found.latency is not None
    assert found.latency.p999_ms > 900


async def test_where_the_buyers_have_an_end_each_is_counted_and_only_the_accepted_have_a_latency() -> None:
    found = await at_full_speed(Desk(sells=30), spec(warm_s=0.0, seconds=0.0, buyers_max=50))
    assert found.answers == {"accepted": 30, "sold_out": 20}
    assert sorted(found.told) == sorted(set(found.told))
    assert len(found.told) == 30
    assert (found.starved, found.under_way) == (0, None)
