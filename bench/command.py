"""`dropgate bench`, behind its options: stands from settings, progress, the folder, the exit code."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.measures.desk import Desk
from bench.plan import Options
from bench.report.folder import write
from bench.report.run import Run
from bench.report.table import show
from bench.run import Bench, Entrant, Progress, stand_environment
from bench.stand.child import BenchFailed, said
from bench.stand.dropgate import Stand
from bench.stand.sale import PREFIX
from bench.stand.servers import servers_of
from bench.steps import ON_SQL, ROCKETMQ4, ROCKETMQ5, Subjects
from bench.subjects import may_fail
from service.cli.output import Failure, console, say_error
from service.settings import Settings

SERVERS_WANTED = (
    "The bench measures on real servers: set DROPGATE_REDIS_URL, DROPGATE_DATABASE_URL, DROPGATE_BROKER_URL and "
    "DROPGATE_ROCKETMQ_NAMESERVER; or run `make servers`, and `. .servers/env` in another terminal."
)
TRANSPORTS: Mapping[str, Subjects] = {"rocketmq5": ROCKETMQ5, "rocketmq4": ROCKETMQ4}
OTHER = {"rocketmq5": "rocketmq4", "rocketmq4": "rocketmq5"}
IMPORTS_S = 30.0
NAMED_FOR_IT = re.compile(r"(?<![a-z])(bench|tests?)(?![a-z])", re.IGNORECASE)
"""A word of a database's name: `dropgate_bench`, and not `contest`."""
NOT_SAID = (
    "The database {name!r} has no sales, and its name does not say that it is for a bench: a shop's looks so before "
    "its first sale. Name one of the bench's own in DROPGATE_DATABASE_URL, such as dropgate_bench; or say --here if "
    "these servers are for it."
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """`also_python`: a Python with the other client, with `also_broker_url` and `also_library` for it. `here`: these
    servers are for the bench, whatever the database is called."""

    options: Options
    settings: Settings
    also_python: str | None
    also_broker_url: str | None
    also_library: Path | None
    jars: Path
    into: Path
    here: bool


async def measured(request: Request, *, as_json: bool) -> tuple[Run, int]:
    """The run, kept in its folder, and the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="dropgate-bench-"))
    engine = create_async_engine(database_url(request.settings), pool_size=2)
    try:
        await only_ours(engine, here=request.here)
        bench = await _bench(request, engine, folder)
        try:
            await bench.run()
        except BenchFailed as failure:
            bench.failures.append(f"{failure}; the run ends here")
        finally:
            run = bench.found()
            no_pictures = write(run, request.into)
    finally:
        await engine.dispose()
    if no_pictures is not None:
        say_error(no_pictures)
    if not as_json:
        show(run, console())
    for why in bench.failures:
        say_error(f"not measured: {why}")
    say_error(f"Kept in {request.into}; logs of the processes in {folder}.")
    return run, 0 if not bench.failures and is_clean(run) else 1


def is_clean(run: Run) -> bool:
    """Every audit, but of what is there to fail."""
    return all(it.audit is None or it.audit.clean or may_fail(it.subject) for it in run.figures)


def database_url(settings: Settings) -> str:
    """By the driver that the bench looks with: the product's own."""
    scheme, _, rest = settings.database_url.partition("://")
    if scheme.partition("+")[0] not in {"mysql", "mariadb"}:
        raise Failure(SERVERS_WANTED, code=2)
    return f"mysql+aiomysql://{rest}"


async def only_ours(engine: AsyncEngine, *, here: bool) -> None:
    """Orders of a real shop are not for a bench to be among. A shop's database without a sale looks like one of the
    bench: its name must say that it is none, or the operator (`here`)."""
    ours, others = await _sales(engine)
    if others:
        raise Failure("This database has sales that the bench did not make: give it one of its own.", code=2)
    name = engine.url.database or ""
    if not (here or ours or NAMED_FOR_IT.search(name)):
        raise Failure(NOT_SAID.format(name=name), code=2)


async def _sales(engine: AsyncEngine) -> tuple[int, int]:
    """Those of the bench, and those of others."""
    async with engine.connect() as connection:
        there = await connection.execute(text("SHOW TABLES LIKE 'sales'"))
        if there.first() is None:
            return 0, 0
        query = text("SELECT COUNT(CASE WHEN id LIKE :ours THEN 1 END), COUNT(*) FROM sales")
        ours, whole = (await connection.execute(query, {"ours": f"{PREFIX}%"})).one()
        return ours, whole - ours


# --- the parts of a run -----------------------------------------------------------------------------------------------


async def _bench(request: Request, engine: AsyncEngine, folder: Path) -> Bench:
    settings, environment = request.settings, _environment(request.settings)
    scheme, _, address = settings.broker_url.partition("://")
    if scheme not in TRANSPORTS or settings.redis_url == "embedded":
        raise Failure(SERVERS_WANTED, code=2)
    name_server = settings.rocketmq_nameserver or address
    own = Stand(
        name=TRANSPORTS[scheme].http,
        python=sys.executable,
        environment=stand_environment(environment, scheme),
        folder=folder,
    )
    entrants = [Entrant(stand=own, subjects=TRANSPORTS[scheme])]
    if request.also_python is not None:
        entrants.append(await _other(request, environment, OTHER[scheme], name_server, folder))
    entrants.append(Entrant(stand=_on_sql(own), subjects=ON_SQL, on_sql=True))
    options = request.options
    servers = await servers_of(settings, [it.stand.environment["DROPGATE_BROKER_URL"] for it in entrants])
    unwatched = [str(it) for it in servers.left_out]
    for sentence in unwatched:
        say_error(sentence)
    desk = Desk(
        environment=environment,
        engine=engine,
        folder=folder,
        warm_s=options.warm_s,
        seconds=options.seconds,
        servers=servers.processes,
    )
    return Bench(
        desk=desk,
        options=options,
        entrants=entrants,
        name_server=name_server,
        jars=request.jars,
        progress=_progress(),
        unwatched=unwatched,
    )


def _on_sql(stand: Stand) -> Stand:
    """Sales of `authority: sql`; the broker carries their time-outs and events alone."""
    environment = stand_environment(stand.environment, "sql")
    return Stand(name=ON_SQL.http, python=stand.python, environment=environment, folder=stand.folder)


async def _other(
    request: Request, environment: Mapping[str, str], scheme: str, name_server: str, folder: Path
) -> Entrant:
    """The other transport, by the Python that has its client; said at once where it has not."""
    url = request.also_broker_url or (f"rocketmq4://{name_server}" if scheme == "rocketmq4" else None)
    if url is None:
        raise Failure("--also-python wants --also-broker-url: the proxy, as rocketmq5://HOST:PORT.", code=2)
    more = {"DROPGATE_BROKER_URL": url}
    if request.also_library is not None:
        more["LD_LIBRARY_PATH"] = str(request.also_library.absolute())
    stand = Stand(
        name=TRANSPORTS[scheme].http,
        python=os.path.abspath(request.also_python or ""),  # noqa: PTH100, ASYNC240 - not resolved: it may be a link
        environment=stand_environment(environment, scheme, **more),
        folder=folder,
    )
    await said("the other Python", stand.module("service", "--version"), stand.environment, folder, timeout_s=IMPORTS_S)
    return Entrant(stand=stand, subjects=TRANSPORTS[scheme])


def _environment(settings: Settings) -> dict[str, str]:
    """As the settings have it, whichever file they came from; and the source, for another Python."""
    root = str(Path(__file__).parent.parent)
    given = {
        "DROPGATE_REDIS_URL": settings.redis_url,
        "DROPGATE_DATABASE_URL": database_url(settings),
        "DROPGATE_BROKER_URL": settings.broker_url,
    }
    if settings.rocketmq_nameserver is not None:
        given["DROPGATE_ROCKETMQ_NAMESERVER"] = settings.rocketmq_nameserver
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    return {**os.environ, **given, "PYTHONPATH": path}


def _progress() -> Progress:
    """Lines on standard error: a bar would run through the child processes that are measured."""

    def failed(name: str, why: str) -> None:
        say_error(f"  {name} was not measured: {why}")

    return Progress(began=say_error, failed=failed)


def run_measured(request: Request, *, as_json: bool) -> tuple[Run, int]:
    return asyncio.run(measured(request, as_json=as_json))
