"""What every command shares: how it prints, how it fails, how it reads its settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


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
            return f"{setting}: {problem}"
        case Conflict(conflict=code):
            return f"The state forbids it now: {code.replace('_', ' ')}."
        case Unavailable(what=what, why=why):
            return f"{what} is away{f': {why}' if why else ''}. Nothing was written; try again once it is back."
        case _:
            return str(error)


def load_settings(**overrides: object) -> Settings:
    """The settings with these options on top; None leaves a setting alone."""
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError

    from service.settings import Settings

    wanted: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**wanted)
    except ValidationError as error:
        problems = "; ".join(_setting_problem(found["loc"], found["msg"]) for found in error.errors())
        raise Failure(f"A setting is wrong. {problems}", code=2) from None
    except TOMLDecodeError as error:
        raise Failure(f"dropgate.toml is not TOML: {error}", code=2) from None


def _setting_problem(where: Sequence[int | str], message: str) -> str:
    name = str(where[0]) if where else "settings"
    return f"DROPGATE_{name.upper()}: {message}"


def configure_logs(settings: Settings, *, quiet: bool = False) -> None:
    """JSON for machines, lines for people at a terminal; an explicit `log_json` decides. Quiet: warnings only."""
    from service.observability.log import configure

    chosen = "log_json" in settings.model_fields_set
    as_json = settings.log_json if chosen else not sys.stderr.isatty()
    configure(json=as_json, level="WARNING" if quiet else settings.log_level)


def say(text: str) -> None:
    typer.echo(text)


def say_error(text: str) -> None:
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def table(title: str, columns: Iterable[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> Table:
    """A table in the house style; the columns named in `right` hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    numbers = frozenset(right)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def facts_table(title: str, facts: Mapping[str, object]) -> Table:
    """Two columns: what, and how it is."""
    rows = [(name.replace("_", " "), "–" if value is None else str(value)) for name, value in facts.items()]
    return table(title, ("", " "), rows)
