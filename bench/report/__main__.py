"""`python -m bench.report FOLDER` shows a stored run again, `python -m bench.report BEFORE AFTER` compares two.

Exit codes: 0, 1 where a comparison finds something worse, 2 where a run cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.report.compare import compare, comparison_table, notes
from bench.report.folder import draw, read
from bench.report.run import Run, Unreadable
from bench.report.table import print_whole, show
from service.cli.output import console, say, say_error

app = typer.Typer(add_completion=False)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that the bench wrote.")],
    after: Annotated[Path | None, typer.Argument(help="Another one, to be compared with the first.")] = None,
    again: Annotated[bool, typer.Option("--draw", metavar="", help="Draw its pictures once more.")] = False,
) -> None:
    """Show a stored run, or what changed from one to another."""
    try:
        before = read(folder)
        if again and (missing := draw(before, folder)):
            say_error(missing)
        found = 0 if after is None else _compared(before, read(after))
    except Unreadable as error:
        say_error(str(error))
        raise typer.Exit(2) from None
    if after is None:
        show(before, console())
    raise typer.Exit(found)


def _compared(before: Run, after: Run) -> int:
    found = compare(before, after)
    print_whole([comparison_table(found)], console())
    for sentence in notes(found):
        say(sentence)
    return 1 if found.regressions else 0


if __name__ == "__main__":
    app()
