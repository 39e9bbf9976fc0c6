"""One run: round after round through all steps, stand by stand, and what was found as one document."""

from __future__ import annotations

import platform
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
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
from bench.measures.warm import warmed
from bench.plan import Options, Step
from bench.progress import Course
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
    """`began` hears a line before each step is taken, `failed` of one that could not be."""

    began: Callable[[str], None]
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
    unwatched: Sequence[str] = ()
    """One sentence each server that cannot be watched."""
    figures: list[Figure] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    rounds: int = 0
    """Begun."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def run(self) -> None:
        course = Course(planned=self.planned(), rounds=self.options.repeats)
        keys = {it.stand.name: await it.stand.prepare() for it in self.entrants}
        await self._warm()
        for repeat in range(self.options.repeats):
            self.rounds = repeat + 1
            await self._take(self._bare(repeat), course)
            turn = repeat % len(self.entrants)
            for entrant in (*self.entrants[turn:], *self.entrants[:turn]):
                async with self._api(entrant, keys[entrant.stand.name]) as (api, secret):
                    await self._take(self._steps(entrant, api, secret, repeat), course)
                    await self._end_sales(entrant.stand)

    async def _warm(self) -> None:
        """A stand that cannot be warmed says why, and is measured all the same: its steps will say more."""
        for it in self.entrants:
            self.progress.began(f"warming up for {it.stand.name}")
            try:
                await warmed(self.desk, it.stand, it.subjects.half_send, on_sql=it.on_sql)
            except EXPECTED as failure:
                self.progress.failed(f"warming up for {it.stand.name}", str(failure))

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
            unwatched=tuple(self.unwatched),
        )

    def planned(self) -> Iterator[str]:
        """The names of all steps of all rounds; to name them no API need run."""
        for repeat in range(self.options.repeats):
            yield from (it.name for it in self._bare(repeat))
            for entrant in self.entrants:
                yield from (it.name for it in self._steps(entrant, _unstarted(entrant), "", repeat))

    def _bare(self, repeat: int) -> list[Step]:
        return self._wanted(bare_steps(self.desk, self.options), repeat)

    def _steps(self, entrant: Entrant, api: Api, secret: str, repeat: int) -> list[Step]:
        """Of a stand; the Java client's after those of the first."""
        steps = [*stand_steps(self.desk, self.options, api, entrant.subjects, secret)]
        if entrant is self.entrants[0]:
            steps.append(java_step(self.desk, self.name_server, self.jars))
        return self._wanted(steps, repeat)

    def _wanted(self, steps: Iterable[Step], repeat: int) -> list[Step]:
        return [it for it in steps if it.group in self.options.groups and (it.repeated or repeat == 0)]

    @asynccontextmanager
    async def _api(self, entrant: Entrant, bearer: str) -> AsyncIterator[tuple[Api, str]]:
        stand, secret = entrant.stand, secrets.token_urlsafe(32)
        async with (
            stand.part("keeper") as (keeper, _),
            stand.part("api", DROPGATE_PAYMENT_SECRETS=secret) as (it, line),
        ):
            processes = {"dropgate api": it.process.pid, "dropgate keeper": keeper.process.pid}
            yield replace(_unstarted(entrant), address=Address.of(line), bearer=bearer, processes=processes), secret

    async def _take(self, steps: Sequence[Step], course: Course) -> None:
        """A step that fails is said and left out; the others are measured all the same."""
        for step in steps:
            self.progress.began(course.begin(step.name, self.rounds))
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


def _unstarted(entrant: Entrant) -> Api:
    """Before anybody knows where it is."""
    nowhere = Address(host="", port=0)
    return Api(
        stand=entrant.stand,
        subject=entrant.subjects.http,
        address=nowhere,
        bearer="",
        processes={},
        on_sql=entrant.on_sql,
    )


def machine() -> str:
    memory_gb = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores, {memory_gb:.0f} GB, {platform.machine()}, {platform.system()}"


def stand_environment(environment: Mapping[str, str], name: str, **more: str) -> dict[str, str]:
    """Topics of its own for each stand: what one leaves in the broker is not the other's."""
    return {**environment, "DROPGATE_TOPIC_PREFIX": f"dropgate-bench-{name}", **more}
