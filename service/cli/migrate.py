"""`dropgate migrate`: bring the database to what this release needs."""

from __future__ import annotations

import typer

from service.cli.output import AsJson, Home, print_json, say
from service.cli.services import with_settings


def migrate(home: Home = None, as_json: AsJson = False) -> None:
    """Bring the database schema up to date. Repeatable."""
    from service import bootstrap

    revision = with_settings(home, bootstrap.migrate)
    if as_json:
        print_json({"revision": revision})
    else:
        say(f"The database is at revision {revision}.")


def register(app: typer.Typer) -> None:
    app.command()(migrate)
