"""What every measurement shares: where things are, how long it takes, and the generator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
from sqlalchemy.ext.asyncio import AsyncEngine

from bench import doubts
from bench.closed_loop import Timed
from bench.figures import Figure, Latency, Usage
from bench.load.spec import LoadResult, LoadSpec
from bench.stand.child import said
from bench.stand.dropgate import Address
from bench.stand.usage import Watch, watching


@dataclass(frozen=True, kw_only=True)
class Desk:
    """`environment` is what processes of the bench see; a stand has its own. `engine`: the database, to look at.
    `servers`: those that can be watched, by the names that tables show."""

    environment: Mapping[str, str]
    engine: AsyncEngine
    folder: Path
    warm_s: float
    seconds: float
    servers: Mapping[str, psutil.Process] = field(default_factory=dict)

    def watching(self, processes: Mapping[str, int] | None = None) -> AbstractAsyncContextManager[Watch]:
        """These, and the servers."""
        return watching(processes or {}, self.servers)

    async def timed(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], *, timeout_s: float
    ) -> Figure:
        """Of a process that prints what it timed."""
        async with self.watching() as watch:
            output = await said(name, command, environment, self.folder, timeout_s=timeout_s)
        timed = msgspec.json.decode(output, type=Timed)
        return msgspec.structs.replace(timed.figure, servers=watch.servers(timed.began_s, timed.ended_s))

    async def crowd(self, spec: LoadSpec) -> LoadResult:
        output = await said(
            "load generator",
            [sys.executable, "-m", "bench.load"],
            self.environment,
            self.folder,
            stdin=msgspec.json.encode(spec),
            timeout_s=spec.warm_s + spec.seconds + 660,
        )
        return msgspec.json.decode(output, type=LoadResult)

    def spec(self, address: Address, path: str, bearer: str, clients: int) -> LoadSpec:
        return LoadSpec(
            host=address.host,
            port=address.port,
            path=path,
            bearer=bearer,
            clients=clients,
            warm_s=self.warm_s,
            seconds=self.seconds,
        )


GOOD = frozenset({"200", "202"})


def note_of(result: LoadResult, *more: str, wanted: frozenset[str] = GOOD) -> str:
    """What makes it doubtful, what else was heard than what is measured, and what else is to be said."""
    others = ", ".join(f"{count:,} {code}" for code, count in result.answers.items() if code not in wanted)
    return doubts.joined(
        (
            *more,
            doubts.limited(_generator(result)),
            doubts.starved(result.starved, result.clients),
            doubts.contradicted(result.under_way, result.clients),
            others,
        )
    )


def latency_of_good(result: LoadResult, wanted: frozenset[str] = GOOD) -> Latency | None:
    """Of the answers that are measured, the most frequent code: quick refusals are no acceptances."""
    found = [code for code in result.latencies if code in wanted]
    return result.latencies[max(found, key=lambda code: result.answers.get(code, 0))] if found else None


def usage_of(watch: Watch, result: LoadResult) -> tuple[Usage, ...]:
    """In the measured time, the generator's own with it."""
    return (*watch.usage(result.began_s, result.ended_s), _generator(result))


def _generator(result: LoadResult) -> Usage:
    return Usage(process="load generator", cores=result.cpu_s / result.seconds, resident_mb=0.0)


def servers_of(watch: Watch, result: LoadResult) -> tuple[Usage, ...]:
    """In the measured time."""
    return watch.servers(result.began_s, result.ended_s)
