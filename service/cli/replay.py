"""`dropgate replay`: what got stuck, and having it brought to its end. A dry run unless told otherwise."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import AsJson, Home, console, print_json, say, table
from service.cli.replay_view import next_step, replay_json, replay_rows
from service.cli.services import actor, with_operator
from service.domain.errors import InvalidRequest
from service.domain.ids import BatchId, ReservationId, SaleId
from service.domain.replay import Replay, ReplayId, Scope, Source, check_why

if TYPE_CHECKING:
    from service.bootstrap import OperatorServices
    from service.core.replay import Progress

_AGE = re.compile(r"(\d{1,9})([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_age(text: str) -> int:
    """90, 90s, 15m, 2h, 1d: in seconds."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not an age like 60s, 15m or 2h.", param_hint="'--older-than'")
    return int(found[1]) * _SECONDS[found[2]]


def replay(  # noqa: PLR0913, PLR0917 - Typer's options are arguments
    source: Annotated[
        Source | None,
        typer.Option("--source", help="Where it got stuck: in Redis, or at the broker (discarded, dead letter)."),
    ] = None,
    sale: Annotated[str | None, typer.Option("--sale", metavar="SALE", help="Only this sale's.")] = None,
    reservation: Annotated[
        list[str] | None, typer.Option("--reservation", metavar="ID", help="Only this reservation's batch. Repeatable.")
    ] = None,
    batch: Annotated[
        list[str] | None, typer.Option("--batch", metavar="ID", help="Only this batch. Repeatable.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Only what is older: 60s, 15m, 2h.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", metavar="", help="Do it. Without it: only look.")] = False,
    why: Annotated[
        str | None, typer.Option("--why", metavar="TEXT", help="Goes into the audit; needed with --apply.")
    ] = None,
    show: Annotated[
        str | None, typer.Option("--show", metavar="REPLAY", help="Look at a replay that acted, as it stands now.")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Find reservations whose message got stuck, and bring them to an order or a release.

    It looks, and changes nothing, unless --apply is there. Running it again does no harm. Exit code 0: nothing is left
    to do. 1: something is, was refused, or waits.
    """
    if show is not None:
        _only_show(source, apply)
        found = with_operator(home, lambda services: services.replays.get(ReplayId(show)))
    else:
        scope = _scope(source, sale, reservation or (), batch or (), older_than)
        reason = _reason(apply, why)
        found = with_operator(home, _work(scope, reason, quiet=as_json))
    if as_json:
        print_json(replay_json(found))
    else:
        _print(found)
    raise typer.Exit(0 if found.settled else 1)


def _work(scope: Scope, reason: str | None, *, quiet: bool) -> Callable[[OperatorServices], Awaitable[Replay]]:
    async def work(services: OperatorServices) -> Replay:
        if reason is None:
            return await services.replays.look(scope, actor=actor())
        with _progress(quiet=quiet) as progress:
            return await services.replays.act(scope, why=reason, actor=actor(), progress=progress)

    return work


def _scope(
    source: Source | None,
    sale: str | None,
    reservations: list[str] | tuple[()],
    batches: list[str] | tuple[()],
    older_than: str | None,
) -> Scope:
    if source is None:
        raise typer.BadParameter(f"say where to look: {', '.join(Source)}.", param_hint="'--source'")
    scope = Scope(
        source=source,
        sale_id=None if sale is None else SaleId(sale),
        reservation_ids=tuple(dict.fromkeys(ReservationId(id_) for id_ in reservations)),
        batch_ids=tuple(dict.fromkeys(BatchId(id_) for id_ in batches)),
        older_than_s=0 if older_than is None else parse_age(older_than),
    )
    with _misuse():
        scope.check()
    return scope


OPTION_OF = {
    "scope.sale": "--sale",
    "scope.reservation_ids": "--reservation",
    "scope.batch_ids": "--batch",
    "scope.older_than_s": "--older-than",
    "why": "--why",
}


@contextmanager
def _misuse() -> Iterator[None]:
    """A field that the domain does not take, by the name of its option."""
    try:
        yield
    except InvalidRequest as error:
        raise typer.BadParameter(f"{error.problem}.", param_hint=f"'{OPTION_OF[error.field]}'") from None


def _reason(apply: bool, why: str | None) -> str | None:
    """None: a dry run."""
    if not apply and why is not None:
        raise typer.BadParameter("it belongs to --apply: nothing is done without it.", param_hint="'--why'")
    if not apply:
        return None
    reason = why or ""
    with _misuse():
        check_why(reason)
    return reason


def _only_show(source: Source | None, apply: bool) -> None:
    if source is not None or apply:
        raise typer.BadParameter(
            "it only looks at a replay that was: leave --source and --apply out.", param_hint="'--show'"
        )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress | None]:
    """A bar on standard error, at a terminal. It goes when the work is done."""
    errors = console(stderr=True)
    if quiet or not errors.is_terminal:
        yield None
        return
    from rich.progress import Progress as Bar

    with Bar(console=errors, transient=True) as bar:
        task = bar.add_task("Replaying", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def _print(found: Replay) -> None:
    from rich.markup import escape

    if found.items:
        columns = ("outcome", "batch or id", "sale", "age", "reservations", "why")
        rows = [[escape(cell) for cell in row] for row in replay_rows(found)]
        title = f"Replay of {found.scope.source}" + (": a dry run" if found.dry_run else f": {found.id}")
        console().print(table(title, columns, rows, whole_words=("outcome", "batch or id", "age")))
    say(next_step(found))


def register(app: typer.Typer) -> None:
    app.command()(replay)
