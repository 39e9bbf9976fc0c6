"""One run: round after round through all steps, stand by stand, and what was found as one document."""

from __future__ import annotations

import platform
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
import psutil
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from bench.figures import Figure
from bench.measures.desk import Desk
from bench.measures.selling import Api
from bench.plan import Options, Step
from bench.report.facts import Fact
from bench.report.run import Run
from bench.stand.child import BenchFailed
from bench.stand.dropgate import Address, Stand
from bench.stand.sale import end_sales
from bench.steps import Subjects, bare_steps, java_step, stand_steps

EXPECTED = (BenchFailed, OSError, TimeoutError, psutil.Error, SQLAlchemyError, RedisError, msgspec.MsgspecError)
"""What a step may meet: a part or a server that is not there, or not as it should be."""
FAILURES_MAX = 10
"""More, and the run is given up: the servers are gone, not a step."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A stand of one run, with the API that it is to have."""

    stand: Stand
    subjects: Subjects
    on_sql: bool = False


@dataclass(kw_only=True)
class Progress:
    """`began` hears of each step before it is taken, `failed` of one that could not be."""

    began: Callable[[str, int, int], None]
    failed: Callable[[str, str], None]


@dataclass(kw_only=True)
class Bench:
    """`name_server` and `jars` are for the Java client; without them that step fails, and says so."""

    desk: Desk
    options: Options
    entrants: Sequence[Entrant]
    name_server: str
    jars: Path
    progress: Progress
    figures: list[Figure] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    rounds: int = 0
    """Begun."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def run(self) -> None:
        keys = {it.stand.name: await it.stand.prepare() for it in self.entrants}
        for repeat in range(self.options.repeats):
            self.rounds = repeat + 1
            await self._take(self._wanted(bare_steps(self.desk, self.options), repeat))
            java = java_step(self.desk, self.name_server, self.jars)
            turn = repeat % len(self.entrants)
            for entrant in (*self.entrants[turn:], *self.entrants[:turn]):
                async with self._api(entrant, keys[entrant.stand.name]) as (api, secret):
                    steps = stand_steps(self.desk, self.options, api, entrant.subjects, secret)
                    await self._take(self._wanted(steps, repeat))
                    await self._take(self._wanted(iter([java]), repeat) if entrant is self.entrants[0] else [])
                    await self._end_sales(entrant.stand)

    async def _end_sales(self, stand: Stand) -> None:
        """Each sale ends before the next; the last one here, while its keeper still runs."""
        try:
            await end_sales(self.desk.engine, stand)
        except EXPECTED as failure:
            self.failures.append(f"the last sale of {stand.name} was not ended: {failure}")

    def found(self) -> Run:
        """So far: whoever ends a run early keeps what it measured."""
        return Run(
            started_at=self.started_at,
            machine=machine(),
            versions={"dropgate": version("dropgate"), "python": platform.python_version()},
            repeats=self.rounds,
            figures=tuple(self.figures),
            facts=tuple(self.facts),
        )

    def _wanted(self, steps: Iterator[Step], repeat: int) -> list[Step]:
        return [it for it in steps if it.group in self.options.groups and (it.repeated or repeat == 0)]

    @asynccontextmanager
    async def _api(self, entrant: Entrant, bearer: str) -> AsyncIterator[tuple[Api, str]]:
        stand, secret = entrant.stand, secrets.token_urlsafe(32)
        async with (
            stand.part("keeper") as (keeper, _),
            stand.part("api", DROPGATE_PAYMENT_SECRETS=secret) as (it, line),
        ):
            api = Api(
                stand=stand,
                subject=entrant.subjects.http,
                address=Address.of(line),
                bearer=bearer,
                processes={"dropgate api": it.process.pid, "dropgate keeper": keeper.process.pid},
                on_sql=entrant.on_sql,
            )
            yield api, secret

    async def _take(self, steps: Sequence[Step]) -> None:
        """A step that fails is said and left out; the others are measured all the same."""
        for number, step in enumerate(steps, 1):
            self.progress.began(step.name, number, len(steps))
            try:
                found = await step.take()
            except EXPECTED as failure:
                self.failures.append(f"{step.name}: {failure}")
                self.progress.failed(step.name, str(failure))
                if len(self.failures) > FAILURES_MAX:
                    raise BenchFailed(f"{len(self.failures)} steps failed: the servers are gone") from failure
                continue
            self.figures += [it for it in found if isinstance(it, Figure)]
            self.facts += [it for it in found if isinstance(it, Fact)]


def machine() -> str:
    memory_gb = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores, {memory_gb:.0f} GB, {platform.machine()}, {platform.system()}"


def stand_environment(environment: Mapping[str, str], name: str, **more: str) -> dict[str, str]:
    """Topics of its own for each stand: what one leaves in the broker is not the other's."""
    return {**environment, "DROPGATE_TOPIC_PREFIX": f"dropgate-bench-{name}", **more}
