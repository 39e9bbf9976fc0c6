"""Clients as coroutines that wait for the reserve use case, over adapters wired as in a process of the product."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from bench.figures import Latency, latency_of
from bench.load.requests import buyer, idempotency_key
from consumers.loop import take_turns
from service.bootstrap.adapters import open_adapters
from service.bootstrap.use_cases import UseCases
from service.core.directory import REFRESH_S
from service.core.readiness import LOOK_S
from service.core.reserve import ReserveRequest
from service.domain.errors import Busy, Conflict, DropgateError
from service.domain.ids import BuyerId, SaleId
from service.observability.log import configure
from service.settings import Settings

READY_S = 30.0
PAUSE_S = 0.02


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    sale: str
    clients: int
    warm_s: float
    seconds: float
    buyers_max: int | None = None
    """So many, and then the end; None: until `seconds` are over."""


class EngineResult(msgspec.Struct, frozen=True, kw_only=True):
    """As a LoadResult; the latency is that of who was accepted. `clients` is how many there were."""

    seconds: float
    began_s: float
    ended_s: float
    answers: dict[str, int]
    latency: Latency | None
    told: list[int]
    cpu_s: float
    resident_mb: float
    clients: int
    starved: int
    under_way: float | None


@dataclass
class _Heard:
    answers: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    waited_s: float = 0.0
    clients: int = 0
    """That had an answer in the measured time."""


async def measure(spec: EngineSpec) -> EngineResult:
    settings = Settings()
    configure(json=True, level=settings.log_level)
    async with open_adapters(settings, start_redis=False) as adapters:
        cases = UseCases(settings, adapters)
        async with _view(cases):
            await _ready(cases)
            return await at_full_speed(cases.reserve, spec)


@asynccontextmanager
async def _view(cases: UseCases) -> AsyncIterator[None]:
    """What keeps a process fit to sell: its view of the sales, its registration, its readiness."""
    stop = asyncio.Event()
    await cases.refresh()

    def turns(name: str, turn: Callable[[], Awaitable[object]], interval_s: float) -> asyncio.Task[None]:
        clock = cases.adapters.clock
        return asyncio.create_task(take_turns(name, turn, interval_s=interval_s, stop=stop, clock=clock))

    tasks = [
        turns("view", cases.refresh, REFRESH_S),
        turns("registration", cases.producer.turn, 1.0),
        turns("readiness", cases.readiness.turn, LOOK_S),
    ]
    try:
        yield
    finally:
        await cases.reserve.drain()
        stop.set()
        await asyncio.gather(*tasks)


async def _ready(cases: UseCases) -> None:
    async with asyncio.timeout(READY_S):
        while await cases.readiness.missing():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(PAUSE_S)


class Reserves(Protocol):
    async def reserve(self, request: ReserveRequest) -> object: ...


async def at_full_speed(reserve: Reserves, spec: EngineSpec) -> EngineResult:
    """What is counted has its wait, and what is open at the end has its own, as in a crowd."""
    heard, numbers = _Heard(), iter(range(1 << 40 if spec.buyers_max is None else spec.buyers_max))
    began_s = time.monotonic()
    measured_from_s = began_s + spec.warm_s
    ends_s = measured_from_s + spec.seconds
    cpu_at_s = time.process_time()

    async def client() -> None:
        any_counts = False
        for number in numbers:
            asked_s = time.monotonic()
            if spec.buyers_max is None and asked_s >= ends_s:
                break
            code = await _reserve(reserve, spec, number)
            now_s = time.monotonic()
            if code == "accepted":
                heard.told.append(number)
                if now_s >= measured_from_s:
                    heard.latencies_s.append(now_s - asked_s)
            if spec.buyers_max is not None or measured_from_s <= now_s <= ends_s:
                any_counts = True
                heard.answers[code] += 1
                heard.waited_s += now_s - asked_s
        heard.clients += any_counts

    await asyncio.gather(*(client() for _ in range(spec.clients)))
    ended_s = time.monotonic()
    whole_s = ended_s - began_s
    seconds = spec.seconds if spec.buyers_max is None else whole_s
    return EngineResult(
        seconds=seconds,
        began_s=measured_from_s,
        ended_s=ends_s if spec.buyers_max is None else ended_s,
        answers=dict(heard.answers),
        latency=latency_of(heard.latencies_s),
        told=heard.told,
        cpu_s=(time.process_time() - cpu_at_s) * seconds / whole_s,
        resident_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        clients=spec.clients,
        starved=spec.clients - heard.clients,
        under_way=heard.waited_s / seconds if spec.buyers_max is None else None,
    )


async def _reserve(reserve: Reserves, spec: EngineSpec, number: int) -> str:
    request = ReserveRequest(
        sale_id=SaleId(spec.sale), buyer_id=BuyerId(buyer(number)), quantity=1, key=idempotency_key(number)
    )
    try:
        await reserve.reserve(request)
    except Conflict as refused:
        return refused.conflict
    except Busy:
        await asyncio.sleep(PAUSE_S)
        return "too_busy"
    except DropgateError as error:
        return type(error).__name__
    return "accepted"
