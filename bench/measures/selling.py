"""Accept and reject, over HTTP and without, and the drain of what was accepted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import msgspec

from bench import doubts
from bench.engine.clients import EngineResult, EngineSpec
from bench.figures import Figure, Measure, Usage, Variant
from bench.load.spec import LoadResult
from bench.measures.desk import GOOD, Desk, latency_of_good, note_of, servers_of, usage_of
from bench.measures.memory import redis_bytes
from bench.report.facts import Fact, FactName
from bench.stand.child import BenchFailed, said
from bench.stand.dropgate import Address, Stand
from bench.stand.sale import BenchSale, orders_of
from bench.stand.usage import Watch

ENOUGH = 10_000_000
"""Units that no crowd of the bench sells out."""
SEEN_S = 1.0
"""Until every process has the new sale in its view, twice over."""
DRAIN_S = 120.0
DRAINED_PER_S = 500.0
"""Below this, and DRAIN_S, it is given up."""
LOOK_S = 0.2
ENGINE_AROUND_S = 90.0
"""For its start, its readiness and its drain; and for all of its buyers, where it goes by their number."""
REFUSED = frozenset({"sold_out"})


@dataclass(frozen=True, kw_only=True)
class Api:
    """A running API of a stand; its subject is what figures call it."""

    stand: Stand
    subject: str
    address: Address
    bearer: str
    processes: Mapping[str, int]
    on_sql: bool = False


async def accept(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """At full speed, with the order consumer stopped; it makes the orders afterwards, for the audit."""
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH, on_sql=api.on_sql)
    await asyncio.sleep(SEEN_S)
    async with desk.watching(api.processes) as watch:
        result = await desk.crowd(desk.spec(api.address, sale.path, api.bearer, clients))
    await _ordered(desk, sale, result.told, on_sql=api.on_sql)
    return [await figure_of(desk, api, sale, Measure.ACCEPT, clients, result, watch)]


async def reject(desk: Desk, api: Api, clients: int) -> list[Figure]:
    """Of a sale that is sold out."""
    sale = await BenchSale.opened(desk.engine, api.stand, 0, on_sql=api.on_sql)
    await asyncio.sleep(SEEN_S)
    async with desk.watching(api.processes) as watch:
        result = await desk.crowd(desk.spec(api.address, sale.path, api.bearer, clients))
    audit, wrong = await sale.audited(desk.engine, result.told)
    figure = Figure(
        subject=api.subject,
        measure=Measure.REJECT,
        clients=clients,
        unit="requests",
        count=result.answers.get("sold_out", 0),
        seconds=result.seconds,
        latency=latency_of_good(result, REFUSED),
        audit=audit,
        usage=usage_of(watch, result),
        servers=servers_of(watch, result),
        answers=result.answers,
        note=note_of(result, wrong, wanted=REFUSED),
    )
    return [figure]


async def at_rate(desk: Desk, api: Api, variant: Variant, per_s: float, *, clients: int = 256) -> Figure:
    """By a clock, with what the peak was measured with; or among all, with an order consumer on the same cores."""
    among_all = variant is Variant.TENTH_AMONG_ALL
    sale = await BenchSale.opened(desk.engine, api.stand, ENOUGH, on_sql=api.on_sql)
    await asyncio.sleep(SEEN_S)
    spec = msgspec.structs.replace(desk.spec(api.address, sale.path, api.bearer, clients), per_s=per_s)
    async with AsyncExitStack() as stack:
        processes = dict(api.processes)
        if among_all:
            order, _ = await stack.enter_async_context(api.stand.part("order"))
            processes["dropgate order"] = order.process.pid
        async with desk.watching(processes) as watch:
            result = await desk.crowd(spec)
        if not among_all:
            await stack.enter_async_context(api.stand.part("order"))
        return await figure_of(desk, api, sale, Measure.ACCEPT_AT_RATE, clients, result, watch, variant=variant)


async def figure_of(  # noqa: PLR0913, PLR0917 - what a figure has
    desk: Desk,
    api: Api,
    sale: BenchSale,
    measure: Measure,
    clients: int,
    result: LoadResult,
    watch: Watch,
    *notes: str,
    variant: Variant = Variant.ONLY,
    wanted: frozenset[str] = GOOD,
) -> Figure:
    """Of a crowd, by what was accepted; with the audit of its sale."""
    audit, wrong = await sale.audited(desk.engine, result.told)
    return Figure(
        subject=api.subject,
        measure=measure,
        variant=variant,
        clients=clients,
        unit="reservations",
        count=accepted(result),
        seconds=result.seconds,
        latency=latency_of_good(result),
        audit=audit,
        usage=usage_of(watch, result),
        servers=servers_of(watch, result),
        answers=result.answers,
        note=note_of(result, *notes, wrong, wanted=wanted),
    )


def accepted(result: LoadResult) -> int:
    return sum(result.answers.get(code, 0) for code in GOOD)


async def _ordered(desk: Desk, sale: BenchSale, told: Sequence[int], *, on_sql: bool) -> None:
    """All of these have their orders."""
    if told and not on_sql:
        await drain(desk, sale, len(told))


async def drain(desk: Desk, sale: BenchSale, backlog: int) -> Figure:
    """From the consumer's first order to its last: its start is not counted."""
    async with sale.stand.part("order") as (it, _), desk.watching({"dropgate order": it.process.pid}) as watch:
        began_s, first = await _until(desk, sale, 1)
        ended_s, made = await _until(desk, sale, backlog)
        return Figure(
            subject=sale.stand.name,
            measure=Measure.DRAIN,
            clients=1,
            unit="orders",
            count=made - first,
            seconds=max(ended_s - began_s, LOOK_S),
            usage=watch.usage(began_s, ended_s),
            servers=watch.servers(began_s, ended_s),
        )


async def _until(desk: Desk, sale: BenchSale, orders: int) -> tuple[float, int]:
    within_s = max(DRAIN_S, orders / DRAINED_PER_S)
    deadline_s = time.monotonic() + within_s
    while (found := await orders_of(desk.engine, sale.id)) < orders:
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{sale.id} has {found} orders of {orders} after {within_s:.0f} s")
        await asyncio.sleep(LOOK_S)
    return time.monotonic(), found


async def engine_result(desk: Desk, stand: Stand, spec: EngineSpec) -> EngineResult:
    """What its clients heard, in a process of the stand's Python."""
    output = await said(
        f"{stand.name} engine",
        stand.module("bench.engine"),
        stand.environment,
        desk.folder,
        stdin=msgspec.json.encode(spec),
        timeout_s=spec.warm_s + spec.seconds + ENGINE_AROUND_S,
    )
    return msgspec.json.decode(output, type=EngineResult)


async def engine(desk: Desk, stand: Stand, subject: str, clients: int, *, on_sql: bool = False) -> list[Figure | Fact]:
    """Without HTTP, in a process of the stand's Python; orders and audit as over HTTP."""
    sale = await BenchSale.opened(desk.engine, stand, ENOUGH, on_sql=on_sql)
    spec = EngineSpec(sale=sale.id, clients=clients, warm_s=desk.warm_s, seconds=desk.seconds)
    async with desk.watching() as watch:
        result = await engine_result(desk, stand, spec)
    await _ordered(desk, sale, result.told, on_sql=on_sql)
    audit, wrong = await sale.audited(desk.engine, result.told)
    used = Usage(process="engine", cores=result.cpu_s / result.seconds, resident_mb=result.resident_mb)
    figure = Figure(
        subject=subject,
        measure=Measure.ACCEPT,
        clients=clients,
        unit="reservations",
        count=result.answers.get("accepted", 0),
        seconds=result.seconds,
        latency=result.latency,
        audit=audit,
        answers=result.answers,
        note=_engine_note(result, used, wrong),
        usage=(used,),
        servers=watch.servers(result.began_s, result.ended_s),
    )
    found: list[Figure | Fact] = [figure]
    if not on_sql:
        taken = await redis_bytes(desk.environment["DROPGATE_REDIS_URL"], sale.id) / max(1, audit.sold)
        found.append(Fact(name=FactName.REDIS_BYTES, subject=subject, value=taken, unit="bytes"))
    return found


def _engine_note(result: EngineResult, used: Usage, wrong: str) -> str:
    """As `note_of`; the clients are in the engine's own process."""
    starved = doubts.starved(result.starved, result.clients)
    contradicted = doubts.contradicted(result.under_way, result.clients)
    others = ", ".join(f"{count:,} {code}" for code, count in result.answers.items() if code != "accepted")
    return doubts.joined((wrong, doubts.limited(used), starved, contradicted, others))
