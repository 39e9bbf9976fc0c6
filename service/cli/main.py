"""The `dropgate` command: its groups, and how what goes wrong becomes one sentence and an exit code.

Exit codes: 0 done; 1 it failed, or what was checked is not in order; 2 the command or a setting is wrong; 130 Ctrl-C.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from service.cli import audit, bench, key, migrate, replay, sale, serve, topics
from service.cli.demo import command as demo
from service.cli.output import Failure, explain, refused_by_system, say, say_error
from service.domain.errors import DropgateError, SettingRefused


class DropgateCommand(TyperGroup):
    """Maps Dropgate's own errors; usage errors (2) and Ctrl-C (130) are Typer's."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Failure as failure:
            say_error(f"dropgate: {failure}")
            raise typer.Exit(failure.code) from None
        except DropgateError as error:
            say_error(f"dropgate: {explain(error)}")
            raise typer.Exit(2 if isinstance(error, SettingRefused) else 1) from None
        except BrokenPipeError:  # Typer's: whoever read our output has gone
            raise
        except OSError as error:
            say_error(f"dropgate: {refused_by_system(error)}")
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=DropgateCommand,
    name="dropgate",
    help="Sell a limited drop without overselling, without losing an order, and without leaving anyone in doubt.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, secrets among them
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            say(f"dropgate {version('dropgate')}")
        except PackageNotFoundError:
            say("dropgate, run from its source")
        raise typer.Exit


@app.callback()
def _root(
    _show_version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options of every command."""


demo.register(app)
serve.register(app)
sale.register(app)
audit.register(app)
bench.register(app)
replay.register(app)
topics.register(app)
migrate.register(app)
key.register(app)


def main() -> None:
    """Entry point of the wheel's `dropgate` script."""
    app(prog_name="dropgate")
