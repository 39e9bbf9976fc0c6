"""Runs an operator's short command against the configured stores."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from service.cli.output import Failure, configure_logs, load_settings

if TYPE_CHECKING:
    from service.bootstrap import OperatorServices
    from service.settings import Settings

T = TypeVar("T")

EMBEDDED = "embedded"
DATABASE = "dropgate.db"

USER_MAX = 64
"""Of a user's name, which the environment may say: it goes into logs and a column."""


def with_operator(home: Path | None, work: Callable[[OperatorServices], Awaitable[T]]) -> T:
    """Open the stores, check the schema, do `work`, close them."""
    settings = quiet_settings(home)
    return asyncio.run(_with_operator(settings, work))


def with_settings(home: Path | None, work: Callable[[Settings], Coroutine[Any, Any, T]]) -> T:
    """For work that opens what it needs by itself."""
    return asyncio.run(work(quiet_settings(home)))


def quiet_settings(home: Path | None) -> Settings:
    settings = load_settings(home=home)
    configure_logs(settings, quiet=True)
    return settings


def actor() -> str:
    """Who the audit trail names for a change made at this terminal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "cli"
    return f"cli:{''.join(character for character in user if '!' <= character <= '~')[:USER_MAX]}"


async def _with_operator(settings: Settings, work: Callable[[OperatorServices], Awaitable[T]]) -> T:
    from service.bootstrap import operator

    await check_schema(settings)
    async with operator(settings) as services:
        return await work(services)


def check_home(settings: Settings) -> None:
    """Failure where the embedded stack was never made in this folder: a command that only looks makes no folders."""
    home = settings.home
    if settings.database_url == EMBEDDED and not (home / DATABASE).exists():
        raise Failure(
            f"There is nothing of Dropgate in {home.absolute()}: did you mean another --home? "
            "To begin there, run `dropgate migrate`, or `dropgate dev`."
        )
    if settings.database_url == EMBEDDED and not os.access(home / DATABASE, os.W_OK):
        raise Failure(f"You may not write to {home.absolute() / DATABASE}: every command needs to.")


async def check_schema(settings: Settings) -> None:
    """Failure with the remedy unless the database is as this release needs it."""
    from service.bootstrap import schema_problem

    check_home(settings)

    if (problem := await schema_problem(settings)) is not None:
        raise Failure(problem if "dropgate migrate" in problem else f"{problem} Remedy: run `dropgate migrate`.")
