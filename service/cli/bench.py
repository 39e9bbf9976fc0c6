"""`dropgate bench`: how fast it is here, beside what else one could do; each measurement ends in an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.output import AsJson, Failure, say
from service.cli.services import quiet_settings

EXTRAS = frozenset({"psutil", "pygal"})
CLIENTS_MAX = 10_000


def _clients(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(",") if part.strip().isdigit())
    if len(found) != text.count(",") + 1 or min(found) < 1 or max(found) > CLIENTS_MAX:
        raise typer.BadParameter(f"{text!r} is no list of numbers from 1 to {CLIENTS_MAX}.", param_hint="'--clients'")
    return found


def bench(  # noqa: PLR0913, PLR0917 - Typer's options are arguments
    only: Annotated[
        str | None,
        typer.Option(
            metavar="GROUPS",
            help="Of floors, strategies, engine, http, paced, afterwards, stories, soak (default: all but the soak).",
        ),
    ] = None,
    clients: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Clients at a time, a measurement each.")
    ] = "1,16,64,256,1000",
    repeats: Annotated[int, typer.Option(min=1, max=20, help="Rounds; figures are medians.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, max=60, help="Of one measurement.")] = 3.0,
    warm: Annotated[float, typer.Option(min=0, max=60, help="Seconds before each that are not counted.")] = 1.0,
    soak: Annotated[float, typer.Option(min=10, max=86_400, help="Seconds of the soak.")] = 600.0,
    also_python: Annotated[
        str | None,
        typer.Option(metavar="PYTHON", help="A Python with the other RocketMQ client: both transports in one run."),
    ] = None,
    also_broker_url: Annotated[str | None, typer.Option(metavar="URL", help="Of the other transport.")] = None,
    also_library: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where librocketmq is, if not a system library.")
    ] = None,
    jars: Annotated[Path, typer.Option(metavar="FOLDER", help="RocketMQ's jars, for its Java client.")] = Path("jars"),
    into: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run is kept.")] = Path("bench-run"),
    here: Annotated[
        bool,
        typer.Option("--here", metavar="", help="These servers are for the bench, whatever the database is called."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure floors, comparators and Dropgate on the servers of the settings, and audit each measurement.

    It makes sales named bench-…, in a database that has no others; an empty one must have bench or test in its name.
    Exit code 0 if everything was measured and every audit is clean.
    """
    _check_extras()
    from bench.command import Request, run_measured
    from bench.plan import DEFAULT_GROUPS, Group, Options
    from bench.report.run import encode

    known = {group.value: group for group in Group}
    wanted = [] if only is None else only.split(",")
    if strange := [name for name in wanted if name not in known]:
        raise typer.BadParameter(f"{strange[0]!r} is none of {', '.join(known)}.", param_hint="'--only'")
    options = Options(
        groups=frozenset(known[name] for name in wanted) or DEFAULT_GROUPS,
        clients=_clients(clients),
        repeats=repeats,
        warm_s=warm,
        seconds=seconds,
        soak_s=soak,
    )
    request = Request(
        options=options,
        settings=quiet_settings(None),
        also_python=also_python,
        also_broker_url=also_broker_url,
        also_library=also_library,
        jars=jars,
        into=into,
        here=here,
    )
    run, code = run_measured(request, as_json=as_json)
    if as_json:
        say(encode(run).decode().rstrip())
    raise typer.Exit(code)


def _check_extras() -> None:
    from importlib.util import find_spec

    if missing := sorted(name for name in EXTRAS if find_spec(name) is None):
        raise Failure(f"The bench needs {' and '.join(missing)}: pip install 'dropgate[bench]'.", code=2)


def register(app: typer.Typer) -> None:
    app.command()(bench)
