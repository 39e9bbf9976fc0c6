"""`dropgate topics create|check`: the broker's topics and groups."""

from __future__ import annotations

import typer

from service.cli.output import AsJson, Home, print_json, say, say_error
from service.cli.services import check_home, quiet_settings, with_settings

topics = typer.Typer(no_args_is_help=True, help="The broker's topics and consumer groups.")


@topics.command()
def create(home: Home = None, as_json: AsJson = False) -> None:
    """Make the topics that are missing; leave those that are there."""
    from service.bootstrap import create_topics

    names = list(with_settings(home, create_topics))
    if as_json:
        print_json({"created": names})
    elif names:
        say("Made: " + ", ".join(names))
    else:
        say("All topics were there already.")


@topics.command()
def check(home: Home = None, as_json: AsJson = False) -> None:
    """Say which topics, types or groups are not as they must be. Exit code 1 if any."""
    from service.bootstrap import check_topics

    check_home(quiet_settings(home))
    missing = list(with_settings(home, check_topics))
    if as_json:
        print_json({"ok": not missing, "missing": missing})
    elif not missing:
        say("All topics and groups are there.")
    else:
        for sentence in missing:
            say_error(f"dropgate: {sentence}")
    raise typer.Exit(1 if missing else 0)


def register(app: typer.Typer) -> None:
    app.add_typer(topics, name="topics")
