"""Whole stories, with every part running: a rush, hostile requests, processes that are killed, a soak."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec

from bench.figures import Figure, Measure, Usage, Variant
from bench.load.hostile import LEFT_OUT, UNCONNECTED
from bench.load.spec import LoadResult, LoadSpec
from bench.measures.desk import GOOD, Desk, latency_of_good, note_of, servers_of, usage_of
from bench.measures.selling import ENOUGH, SEEN_S, Api, accepted, figure_of
from bench.report.facts import Fact, FactName
from bench.stand.child import BenchFailed, Child
from bench.stand.dropgate import Address, Stand
from bench.stand.sale import BenchSale, number

RUSH_UNITS, RUSH_BUYERS, RUSH_CLIENTS = 1_000, 100_000, 256
BEHIND = ("order", "timeout", "events")
"""Beside the API and the keeper."""
GOOD_A_HOSTILE = 9
HOSTILE_LEAST = 0.9
"""Of the hostile requests that are to be: with fewer, what the good ones keep says nothing."""
BETWEEN_KILLS_S = 1.0
KILLED_WITHIN_S = 4.0
"""The crowd of a kill asks for so long at least, so that it is there when the kill comes."""
KILL_WINDOW_S = 5
"""A delay level of RocketMQ's own list: time-outs fall due in mid-run."""
DONE_S = 60.0
"""For a part to begin, and for another to do what the killed one left: its messages come again after a while."""
LOOK_S = 0.1
SOAK_S = 600.0
"""A shorter one says nothing of a leak."""
RUSHED = GOOD | {"sold_out"}


@asynccontextmanager
async def all_parts(stand: Stand) -> AsyncIterator[Mapping[str, Child]]:
    """BenchFailed where one has ended by itself: what it left undone is not always in the books."""
    async with AsyncExitStack() as stack:
        parts = {part: (await stack.enter_async_context(stand.part(part)))[0] for part in BEHIND}
        yield parts
        for part, it in parts.items():
            if it.process.returncode is not None:
                raise BenchFailed(f"{part} ended by itself with {it.process.returncode}; its log is {it.log}")


def _ids(api: Api, parts: Mapping[str, Child]) -> dict[str, int]:
    return {**api.processes, **{f"dropgate {name}": it.process.pid for name, it in parts.items()}}


async def rush(desk: Desk, api: Api) -> list[Figure]:
    """RUSH_BUYERS come for RUSH_UNITS, each once."""
    sale = await BenchSale.opened(desk.engine, api.stand, RUSH_UNITS)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, RUSH_CLIENTS)
    async with all_parts(api.stand) as parts:
        async with desk.watching(_ids(api, parts)) as watch:
            result = await desk.crowd(msgspec.structs.replace(spec, buyers_max=RUSH_BUYERS, warm_s=0.0))
        figure = await figure_of(desk, api, sale, Measure.RUSH, RUSH_CLIENTS, result, watch, wanted=RUSHED)
    # Whoever hears "sold out" is served, too: the rate is that of the whole rush, but for those who were turned away.
    served = sum(result.answers.get(code, 0) for code in RUSHED)
    return [msgspec.structs.replace(figure, unit="requests", count=served)]


async def hostile(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """Good clients alone (noted so), and the same beside hostile requests at a ninth of the rate that they had: a tenth
    of all requests, or more."""
    alone = await _crowded(desk, api, clients, 0.0)
    return [alone, await _crowded(desk, api, clients, alone.rate_per_s / GOOD_A_HOSTILE)]


async def _crowded(desk: Desk, api: Api, clients: int, hostile_per_s: float) -> Figure:
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH)
    await asyncio.sleep(SEEN_S)
    spec = desk.spec(api.address, sale.path, api.bearer, clients)
    async with desk.watching(api.processes) as watch:
        result = await desk.crowd(msgspec.structs.replace(spec, hostile_per_s=hostile_per_s))
    note = hostile_note(result, hostile_per_s) if hostile_per_s else ""
    variant = Variant.ONLY if hostile_per_s else Variant.GOOD_ALONE
    async with api.stand.part("order"):
        return await figure_of(desk, api, sale, Measure.HOSTILE, clients, result, watch, note, variant=variant)


def hostile_note(result: LoadResult, per_s: float) -> str:
    """How many acts of each kind there were, and their share. BenchFailed: fewer than were to be, so that it would be a
    measurement of good clients nearly alone."""
    acts = ", ".join(f"{count:,} {kind}" for kind, count in result.hostile_acts.items() if count)
    done = sum(count for kind, count in result.hostile_acts.items() if kind not in {LEFT_OUT, UNCONNECTED})
    if done < HOSTILE_LEAST * per_s * result.seconds:
        raise BenchFailed(f"of {per_s * result.seconds:,.0f} hostile requests only {done:,} could be sent: {acts}")
    share = done / (done + sum(result.answers.values()))
    return f"hostile: {acts}, {share:.1%} of all requests"


async def soak(desk: Desk, api: Api, per_s: float, seconds: float, clients: int = 64) -> list[Figure | Fact]:
    """By a clock for long, in two halves: what memory grew by from the first to the second is said of each process, and
    is a fact where it was for SOAK_S."""
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
            async with desk.watching(_ids(api, parts)) as watch:
                result = await desk.crowd(spec)
            first += int(per_s * (seconds + desk.warm_s + 10))
            figures.append((result, watch))
        told = [number for result, _ in figures for number in result.told]
        audit, wrong = await sale.audited(desk.engine, told)
    grown = grown_mb(figures[0][1].usage(), figures[1][1].usage())
    said = ", ".join(f"{process} {more:+.1f} MB" for process, more in grown.items())
    found: list[Figure | Fact] = [
        Figure(
            subject=api.subject,
            measure=Measure.SOAK,
            variant=half,
            clients=clients,
            unit="reservations",
            count=accepted(result),
            seconds=result.seconds,
            latency=latency_of_good(result),
            audit=audit,
            usage=usage_of(watch, result),
            servers=servers_of(watch, result),
            answers=result.answers,
            note=note_of(result, said, wrong),
        )
        for half, (result, watch) in zip((Variant.FIRST_HALF, Variant.SECOND_HALF), figures, strict=True)
    ]
    if seconds >= SOAK_S:
        found.append(Fact(name=FactName.SOAK_GREW, subject=api.subject, value=max(grown.values()), unit="MB"))
    return found


def grown_mb(before: tuple[Usage, ...], after: tuple[Usage, ...]) -> dict[str, float]:
    """By process. One that is new has grown by all that it has."""
    was = {it.process: it.resident_mb for it in before}
    return {it.process: it.resident_mb - was.get(it.process, 0.0) for it in after}


@dataclass(frozen=True, kw_only=True)
class Work:
    """`done` counts what a part has done for a sale (`:id`) whose events are those after `:since`, one for each
    reservation in the end. `window_s`: of that sale."""

    killed: Variant
    done: str
    window_s: int | None = None


WORK: Mapping[str, Work] = {
    "order": Work(killed=Variant.ORDER_KILLED, done="SELECT COUNT(*) FROM orders WHERE sale_id = :id"),
    "timeout": Work(
        killed=Variant.TIMEOUT_KILLED,
        done="SELECT COUNT(*) FROM orders WHERE sale_id = :id AND status = 'cancelled'",
        window_s=KILL_WINDOW_S,
    ),
    "events": Work(
        killed=Variant.EVENTS_KILLED,
        done="SELECT COUNT(*) FROM outbox WHERE sent = 1 AND seq > :since AND sale_id = :id",
    ),
}


async def killed(desk: Desk, api: Api, clients: int, part: str) -> list[Figure]:
    """A part is killed (SIGKILL) with some of its work done and some not, and another started. In doubt is what is not
    done in the end; and nobody who was told of a reservation is without."""
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH, window_s=WORK[part].window_s)
    since = await number(desk.engine, "SELECT COALESCE(MAX(seq), 0) FROM outbox")
    await asyncio.sleep(SEEN_S)
    spec = _lasting(desk.spec(api.address, sale.path, api.bearer, clients))
    async with AsyncExitStack() as stack:
        behind = {it: (await stack.enter_async_context(api.stand.part(it)))[0] for it in BEHIND}
        async with desk.watching(api.processes) as watch, asyncio.TaskGroup() as group:
            loading = group.create_task(desk.crowd(spec))
            await asyncio.sleep(desk.warm_s + BETWEEN_KILLS_S)
            await _reached(desk, sale, part, since, 1)
            victim = behind[part]
            victim.process.send_signal(signal.SIGKILL)
            await victim.process.wait()
            at_kill = await _done(desk, sale, part, since)
            await stack.enter_async_context(api.stand.part(part))
        result = loading.result()
        in_the_end = await _reached(desk, sale, part, since, len(result.told))
        note = killed_note(part, at_kill, len(result.told))
        figure = await figure_of(
            desk, api, sale, Measure.KILLED, clients, result, watch, note, variant=WORK[part].killed
        )
        return [_in_doubt(figure, len(result.told) - in_the_end)]


def _lasting(spec: LoadSpec) -> LoadSpec:
    return msgspec.structs.replace(spec, seconds=max(spec.seconds, KILLED_WITHIN_S))


async def _done(desk: Desk, sale: BenchSale, part: str, since: int) -> int:
    return await number(desk.engine, WORK[part].done, id=sale.id, since=since)


async def _reached(desk: Desk, sale: BenchSale, part: str, since: int, wanted: int) -> int:
    """What is done, once it is so much, or DONE_S are over."""
    deadline_s = time.monotonic() + DONE_S
    while (found := await _done(desk, sale, part, since)) < wanted and time.monotonic() < deadline_s:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(LOOK_S)
    return found


def killed_note(part: str, at_kill: int, whole: int) -> str:
    """BenchFailed: it had not begun, or had done all, so that its death was none."""
    if not 0 < at_kill < whole:
        raise BenchFailed(f"{part} had done {at_kill:,} of {whole:,} when it was killed: that says nothing")
    return f"{at_kill:,} of {whole:,} done by then"


def _in_doubt(figure: Figure, more: int) -> Figure:
    assert figure.audit is not None
    audit = msgspec.structs.replace(figure.audit, in_doubt=max(figure.audit.in_doubt, more))
    return msgspec.structs.replace(figure, audit=audit)


async def api_killed(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """An API of its own: whoever waits for an answer gets none; then the same buyers ask another, with the same keys.
    In doubt is who is told nothing there either. BenchFailed: nobody waited."""
    stand = api.stand
    sale = await BenchSale.opened(desk.engine, stand, ENOUGH)
    async with stand.part("order"):
        async with stand.part("api") as (victim, line), asyncio.TaskGroup() as group:
            loading = group.create_task(
                desk.crowd(_lasting(desk.spec(Address.of(line), sale.path, api.bearer, clients)))
            )
            await asyncio.sleep(desk.warm_s + BETWEEN_KILLS_S + SEEN_S)
            victim.process.send_signal(signal.SIGKILL)
        first = loading.result()
        if not first.unheard:
            raise BenchFailed("nobody waited for an answer when the API was killed: that says nothing")
        spec = desk.spec(api.address, sale.path, api.bearer, clients)
        again = msgspec.structs.replace(spec, first_buyer=min(first.unheard))
        async with desk.watching(api.processes) as watch:
            second = await desk.crowd(again)
        both = msgspec.structs.replace(second, told=sorted({*first.told, *second.told}))
        note = f"{len(first.unheard)} waited for an answer"
        figure = await figure_of(
            desk, api, sale, Measure.KILLED, clients, both, watch, note, variant=Variant.API_KILLED
        )
        return [_in_doubt(figure, len(set(first.unheard) - set(second.told)))]
