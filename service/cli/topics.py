"""`dropgate topics create|check`: the broker's topics and groups."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

import typer

from service.cli.output import AsJson, Home, print_json, say, say_error
from service.cli.services import check_home, quiet_settings, with_settings

topics = typer.Typer(no_args_is_help=True, help="The broker's topics and consumer groups.")

GROUP_NAME = re.compile(r"[a-zA-Z0-9_-]{1,120}")
"""As RocketMQ's own tools allow, and no system name of its (`%RETRY%…`)."""


def _group(text: str) -> str:
    if GROUP_NAME.fullmatch(text):
        return text
    raise typer.BadParameter(
        f"{text!r} is no name of a group: 1 to 120 letters, digits, _ and -.", param_hint="'--events-group'"
    )


EventsGroup = Annotated[
    str | None,
    typer.Option(
        "--events-group",
        metavar="GROUP",
        parser=_group,
        help="Also the group by which your order service reads the events, in order.",
    ),
]


@topics.command()
def create(home: Home = None, events_group: EventsGroup = None, as_json: AsJson = False) -> None:
    """Make the topics that are missing; leave those that are there."""
    from service.bootstrap import create_topics

    names = list(with_settings(home, partial(create_topics, events_group=events_group)))
    if as_json:
        print_json({"created": names})
    elif names:
        say("Made: " + ", ".join(names))
    else:
        say("All topics were there already.")


@topics.command()
def check(home: Home = None, events_group: EventsGroup = None, as_json: AsJson = False) -> None:
    """Say which topics, types or groups are not as they must be. Exit code 1 if any."""
    from service.bootstrap import check_topics

    check_home(quiet_settings(home))
    missing = list(with_settings(home, partial(check_topics, events_group=events_group)))
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
