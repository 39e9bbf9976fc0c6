"""What every command shares: how it prints, how it fails, how it reads its settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.domain.errors import Conflict, DropgateError, InvalidRequest, NotFound, SettingRefused, Unavailable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from service.settings import Settings

Home = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR", help="Folder of the embedded stack (default: the setting `home`, .dropgate)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON for machines.")]
"""`metavar=""` at every flag: Typer's help would show a type behind a name that takes no value."""


def whole(option: str, *, least: int = 0, most: int | None = None) -> Callable[[int | str], int]:
    """A parser of whole numbers. Typer's own reads 49.00 as 49 and 4_900 as 4900: a price that nobody meant."""

    def parse(text: int | str) -> int:
        digits = str(text)
        if digits.isascii() and digits.isdecimal() and int(digits) >= least and (most is None or int(digits) <= most):
            return int(digits)
        bounds = f"of {least:,} or more" if most is None else f"from {least:,} to {most:,}"
        raise typer.BadParameter(
            f"{digits!r} is not a whole number {bounds}, in digits only.", param_hint=f"'{option}'"
        )

    return parse


class Failure(Exception):
    """Ends the command: one sentence on standard error, and this exit code."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


def explain(error: DropgateError) -> str:
    """One sentence for a person at a terminal, without the error's Python."""
    match error:
        case NotFound(kind=kind, id=id_):
            return f"There is no {kind} {id_}."
        case InvalidRequest(field=field, problem=problem):
            return f"{field}: {problem}"
        case SettingRefused(setting=setting, problem=problem):
            return _wrong_setting(_setting_problem((setting,), problem))
        case Conflict(conflict=code):
            return _conflict(code)
        case Unavailable(what=what, why=why, remedy=str(remedy)):
            return f"{what} cannot be used: {why}. Nothing was written; {remedy}."
        case Unavailable(what=what, why=why):
            return f"{what} is away{f': {why}' if why else ''}. Nothing was written; try again once it is back."
        case _:
            return str(error)


_REMEDIES = {
    "sale_is_draft": "The sale is draft: run `dropgate sale warm SALE`, or `dropgate sale open SALE --warm`.",
    "sale_not_warm": "The sale is not loaded: run `dropgate sale warm SALE`, or open it with --warm.",
    "sale_exists": "The id is another sale's, with other rules: `dropgate sale show SALE` has them. Choose another id.",
    "sale_changed_meanwhile": "Somebody else acted on it at the same time: look at it, then do it again.",
}
"""Where a command line says it in other words than HTTP."""


def _conflict(code: str) -> str:
    """What forbids it, and what to do: the words of the HTTP API."""
    from service.api.problems import OTHER, WORDS

    words = WORDS.get(code, OTHER)
    return _REMEDIES.get(code) or f"{words.title}. {words.remedy}"


def refused_by_system(error: OSError) -> str:
    """A file or folder that cannot be used, in one sentence."""
    where = "" if error.filename is None else f" {os.fsdecode(error.filename)}"
    return f"The system refuses{where}: {error.strerror or error}. Look at the folder (--home) and its permissions."


def load_settings(**overrides: object) -> Settings:
    """The settings with these options on top; None leaves a setting alone."""
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError

    from service.settings import Settings

    wanted: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**wanted)
    except ValidationError as error:
        problems = [
            _setting_problem(found["loc"], _WORDS.get(found["type"], found["msg"]), wanted) for found in error.errors()
        ]
        raise Failure(_wrong_setting("; ".join(problems)), code=2) from None
    except TOMLDecodeError as error:
        raise Failure(f"dropgate.toml is not TOML: {error}", code=2) from None


_WORDS = {"extra_forbidden": "there is no such setting"}
"""Where pydantic's words would not help a person."""


def _wrong_setting(problems: str) -> str:
    return f"A setting is wrong. {problems.rstrip('.')}."


def _setting_problem(where: Sequence[int | str], message: str, options: Collection[str] = ()) -> str:
    """Where the value comes from, and what is wrong with it; never the value, which may be a secret."""
    name = str(where[0]) if where else "settings"
    variable = f"DROPGATE_{name.upper()}"
    if name in options:
        return f"--{name}: {message}"
    if any(known.upper() == variable for known in os.environ):
        return f"{variable}: {message}"
    return f"{name} in dropgate.toml: {message}"


def configure_logs(settings: Settings, *, quiet: bool = False) -> None:
    """JSON for machines, lines for people at a terminal; an explicit `log_json` decides. Quiet: warnings only."""
    from service.observability.log import configure

    chosen = "log_json" in settings.model_fields_set
    as_json = settings.log_json if chosen else not sys.stderr.isatty()
    configure(json=as_json, level=settings.log_level, at_least="WARNING" if quiet else None)


def say(text: str) -> None:
    typer.echo(text)


def say_error(text: str) -> None:
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


PIPE_WIDTH = 200
"""Where nobody says how wide: what is read by `less` or `grep` must not break its ids over lines."""


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = PIPE_WIDTH
    return made


def table(
    title: str,
    columns: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    whole_words: Iterable[str] = (),
) -> Table:
    """A table in the house style; `right` names columns of numbers, `whole_words` those that are never broken."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    numbers, unbroken = frozenset(right), frozenset(whole_words)
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in numbers else "left",
            overflow="fold",
            no_wrap=column in numbers or column in unbroken,
        )
    for row in rows:
        made.add_row(*row)
    return made


def facts_table(title: str, facts: Mapping[str, object]) -> Table:
    """Two columns: what, and how it is."""
    rows = [(name.replace("_", " "), "–" if value is None else str(value)) for name, value in facts.items()]
    return table(title, ("", " "), rows)
