"""Whole stories, with every part running: a rush, hostile clients, processes that are killed, a soak."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from bench.figures import Figure, Measure, Usage
from bench.measures.desk import GOOD, Desk, latency_of_good, note_of, usage_of
from bench.measures.selling import ENOUGH, SEEN_S, Api, accepted, figure_of
from bench.stand.child import Child
from bench.stand.dropgate import Address, Stand
from bench.stand.sale import BenchSale
from bench.stand.usage import watching
from bench.subjects import GOOD_ALONE

RUSH_UNITS, RUSH_BUYERS, RUSH_CLIENTS = 1_000, 100_000, 256
BEHIND = ("order", "timeout", "events")
"""Beside the API and the keeper."""
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
    sale = await BenchSale.opened(api.stand, RUSH_UNITS)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, RUSH_CLIENTS)
    async with all_parts(api.stand) as parts:
        async with watching(_ids(api, parts)) as watch:
            result = await desk.crowd(msgspec.structs.replace(spec, buyers_max=RUSH_BUYERS, warm_s=0.0))
        figure = await figure_of(desk, api, sale, Measure.RUSH, RUSH_CLIENTS, result, watch, wanted=RUSHED)
    # Whoever hears "sold out" is served, too: the rate is that of the whole rush.
    return [msgspec.structs.replace(figure, unit="requests", count=sum(result.answers.values()))]


async def hostile(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """Good clients alone (noted so), and the same with one hostile client beside every nine of them."""
    return [await _crowded(desk, api, clients, 0), await _crowded(desk, api, clients, max(1, clients // 9))]


async def _crowded(desk: Desk, api: Api, clients: int, hostile_clients: int) -> Figure:
    sale = await BenchSale.opened(api.stand, ENOUGH)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, clients)
    async with watching(api.processes) as watch:
        result = await desk.crowd(msgspec.structs.replace(spec, hostile=hostile_clients))
    acts = ", ".join(f"{count} {kind}" for kind, count in result.hostile_acts.items())
    async with api.stand.part("order"):
        note = f"hostile: {acts}" if hostile_clients else GOOD_ALONE
        return await figure_of(desk, api, sale, Measure.HOSTILE, clients, result, watch, note)


async def soak(desk: Desk, api: Api, per_s: float, seconds: float, clients: int = 64) -> list[Figure]:
    """By a clock for long, in two halves: what memory grew by from the first to the second is said of each process."""
    sale = await BenchSale.opened(api.stand, ENOUGH)
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
    sale = await BenchSale.opened(api.stand, ENOUGH)
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
    sale = await BenchSale.opened(stand, ENOUGH)
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
