"""`python -m bench.check FOLDER`: whether a kept run is within the margins that every change is held to.

Exit codes: 0, 1 where a margin is crossed or was not measured, 2 where the run cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.report.folder import read
from bench.report.goals import MARGINS, Verdict, judge_all
from bench.report.run import Unreadable
from bench.report.table import goals_table, print_whole
from service.cli.output import console, say_error

app = typer.Typer(add_completion=False)


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="A folder that `dropgate bench` wrote.")]) -> None:
    """Hold a run to the margins."""
    try:
        judged = judge_all(read(folder), MARGINS)
    except Unreadable as error:
        say_error(str(error))
        raise typer.Exit(2) from None
    print_whole([goals_table(judged)], console())
    raise typer.Exit(0 if all(it.verdict is Verdict.MET for it in judged) else 1)


if __name__ == "__main__":
    app()
