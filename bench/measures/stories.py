"""Whole stories, with every part running: a rush, hostile requests, processes that are killed, a soak."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from bench.figures import Figure, Measure, Usage
from bench.load.hostile import LEFT_OUT, UNCONNECTED
from bench.load.spec import LoadResult
from bench.measures.desk import GOOD, Desk, latency_of_good, note_of, usage_of
from bench.measures.selling import ENOUGH, SEEN_S, Api, accepted, figure_of
from bench.stand.child import BenchFailed, Child
from bench.stand.dropgate import Address, Stand
from bench.stand.sale import BenchSale
from bench.stand.usage import watching
from bench.subjects import GOOD_ALONE

RUSH_UNITS, RUSH_BUYERS, RUSH_CLIENTS = 1_000, 100_000, 256
BEHIND = ("order", "timeout", "events")
"""Beside the API and the keeper."""
GOOD_A_HOSTILE = 9
HOSTILE_LEAST = 0.9
"""Of the hostile requests that are to be: with fewer, what the good ones keep says nothing."""
BETWEEN_KILLS_S = 1.0
RUSHED = GOOD | {"sold_out"}


@asynccontextmanager
async def all_parts(stand: Stand) -> AsyncIterator[Mapping[str, Child]]:
    async with AsyncExitStack() as stack:
        yield {part: (await stack.enter_async_context(stand.part(part)))[0] for part in BEHIND}


def _ids(api: Api, parts: Mapping[str, Child]) -> dict[str, int]:
    return {**api.processes, **{f"dropgate {name}": it.process.pid for name, it in parts.items()}}


async def rush(desk: Desk, api: Api) -> list[Figure]:
    """RUSH_BUYERS come for RUSH_UNITS, each once."""
    sale = await BenchSale.opened(desk.engine, api.stand, RUSH_UNITS)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, RUSH_CLIENTS)
    async with all_parts(api.stand) as parts:
        async with watching(_ids(api, parts)) as watch:
            result = await desk.crowd(msgspec.structs.replace(spec, buyers_max=RUSH_BUYERS, warm_s=0.0))
        figure = await figure_of(desk, api, sale, Measure.RUSH, RUSH_CLIENTS, result, watch, wanted=RUSHED)
    # Whoever hears "sold out" is served, too: the rate is that of the whole rush.
    return [msgspec.structs.replace(figure, unit="requests", count=sum(result.answers.values()))]


async def hostile(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """Good clients alone (noted so), and the same beside hostile requests at a ninth of the rate that they had: a tenth
    of all requests, or more."""
    alone = await _crowded(desk, api, clients, 0.0)
    return [alone, await _crowded(desk, api, clients, alone.rate_per_s / GOOD_A_HOSTILE)]


async def _crowded(desk: Desk, api: Api, clients: int, hostile_per_s: float) -> Figure:
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, clients)
    async with watching(api.processes) as watch:
        result = await desk.crowd(msgspec.structs.replace(spec, hostile_per_s=hostile_per_s))
    note = hostile_note(result, hostile_per_s) if hostile_per_s else GOOD_ALONE
    async with api.stand.part("order"):
        return await figure_of(desk, api, sale, Measure.HOSTILE, clients, result, watch, note)


def hostile_note(result: LoadResult, per_s: float) -> str:
    """How many acts of each kind there were, and their share. BenchFailed: fewer than were to be, so that it would be a
    measurement of good clients nearly alone."""
    acts = ", ".join(f"{count:,} {kind}" for kind, count in result.hostile_acts.items() if count)
    done = sum(count for kind, count in result.hostile_acts.items() if kind not in {LEFT_OUT, UNCONNECTED})
    if done < HOSTILE_LEAST * per_s * result.seconds:
        raise BenchFailed(f"of {per_s * result.seconds:,.0f} hostile requests only {done:,} could be sent: {acts}")
    share = done / (done + sum(result.answers.values()))
    return f"hostile: {acts}, {share:.1%} of all requests"


async def soak(desk: Desk, api: Api, per_s: float, seconds: float, clients: int = 64) -> list[Figure]:
    """By a clock for long, in two halves: what memory grew by from the first to the second is said of each process."""
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH)
    await asyncio.sleep(SEEN_S)
    figures, first = [], 0
    async with all_parts(api.stand) as parts:
        for _ in range(2):
            spec = msgspec.structs.replace(
                desk.spec(api.address, sale.path, api.bearer, clients),
                per_s=per_s,
                seconds=seconds / 2,
                first_buyer=first,
            )
            async with watching(_ids(api, parts)) as watch:
                result = await desk.crowd(spec)
            first += int(per_s * (seconds + desk.warm_s + 10))
            figures.append((result, watch))
        told = [number for result, _ in figures for number in result.told]
        audit, wrong = await sale.audited(desk.engine, told)
    grown = _grown(figures[0][1].usage(), figures[1][1].usage())
    return [
        Figure(
            subject=api.subject,
            measure=Measure.SOAK,
            clients=clients,
            unit="reservations",
            count=accepted(result),
            seconds=result.seconds,
            latency=latency_of_good(result),
            audit=audit,
            usage=usage_of(watch, result),
            answers=result.answers,
            note=note_of(result, half, grown, wrong),
        )
        for half, (result, watch) in zip(("first half", "second half"), figures, strict=True)
    ]


def _grown(before: tuple[Usage, ...], after: tuple[Usage, ...]) -> str:
    was = {it.process: it.resident_mb for it in before}
    return ", ".join(f"{it.process} {it.resident_mb - was.get(it.process, 0.0):+.1f} MB" for it in after)


async def killed(desk: Desk, api: Api, clients: int, part: str) -> list[Figure]:
    """A part is killed (SIGKILL) in mid-run and another started; nobody who was told of a reservation is without."""
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, clients)
    async with AsyncExitStack() as stack:
        behind = {it: (await stack.enter_async_context(api.stand.part(it)))[0] for it in BEHIND}
        async with watching(api.processes) as watch, asyncio.TaskGroup() as group:
            loading = group.create_task(desk.crowd(spec))
            await asyncio.sleep(desk.warm_s + BETWEEN_KILLS_S)
            victim = behind[part]
            victim.process.send_signal(signal.SIGKILL)
            await victim.process.wait()
            await stack.enter_async_context(api.stand.part(part))
        result = loading.result()
        return [await figure_of(desk, api, sale, Measure.KILLED, clients, result, watch, f"{part} killed")]


async def api_killed(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """An API of its own: whoever waits for an answer gets none; then the same buyers ask another, with the same
    keys."""
    stand = api.stand
    sale = await BenchSale.opened(desk.engine, stand, ENOUGH)
    async with stand.part("order"):
        async with stand.part("api") as (victim, line), asyncio.TaskGroup() as group:
            loading = group.create_task(desk.crowd(desk.spec(Address.of(line), sale.path, api.bearer, clients)))
            await asyncio.sleep(desk.warm_s + BETWEEN_KILLS_S + SEEN_S)
            victim.process.send_signal(signal.SIGKILL)
        first = loading.result()
        spec = desk.spec(api.address, sale.path, api.bearer, clients)
        again = msgspec.structs.replace(spec, first_buyer=min(first.unheard, default=0))
        async with watching(api.processes) as watch:
            second = await desk.crowd(again)
        both = msgspec.structs.replace(second, told=sorted({*first.told, *second.told}))
        note = f"api killed, {len(first.unheard)} waited for an answer"
        return [await figure_of(desk, api, sale, Measure.KILLED, clients, both, watch, note)]
