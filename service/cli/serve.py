"""`serve`, `consume`, `keeper`: one part in this process. `dev`: all of them on the embedded stack."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import Home, configure_logs, load_settings, say
from service.cli.running import run_until_stopped
from service.cli.services import check_schema

if TYPE_CHECKING:
    from service.bootstrap import Running
    from service.settings import Settings

Host = Annotated[str | None, typer.Option("--host", help="Address to listen on (default: the setting `host`).")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one (default: the setting `port`).")
]
ExitWithParent = Annotated[bool, typer.Option("--exit-with-parent", metavar="", hidden=True)]


class Topic(StrEnum):
    """What `dropgate consume` can do."""

    ORDER = "order"
    TIMEOUT = "timeout"
    EVENTS = "events"


READY = {
    "api": "The API is ready at {url}. Ctrl-C stops it.",
    "order": "Orders are being made. Ctrl-C stops it.",
    "timeout": "Unpaid orders are being timed out. Ctrl-C stops it.",
    "events": "Events are being sent to the broker. Ctrl-C stops it.",
    "keeper": "The keeper is running. Ctrl-C stops it.",
}


def serve(home: Home = None, host: Host = None, port: Port = None) -> None:
    """Answer HTTP: storefront, payments and operator's API."""
    _run_part("api", load_settings(home=home, host=host, port=port))


def consume(topic: Annotated[Topic, typer.Argument(help="Which work to do.")], home: Home = None) -> None:
    """Run one consumer: make orders, time them out, or (the relay) send their events to the broker."""
    _run_part(topic.value, load_settings(home=home))


def keeper(home: Home = None) -> None:
    """Run the keeper: it loads sales into Redis, rebuilds what was lost, ends what is overdue. Several may run."""
    _run_part("keeper", load_settings(home=home))


def dev(home: Home = None, host: Host = None, port: Port = None, with_parent: ExitWithParent = False) -> None:
    """Run everything in one process, on the embedded stack unless a setting says otherwise."""
    settings = load_settings(home=home, host=host, port=port)
    configure_logs(settings)

    async def main(stop: asyncio.Event) -> int:
        from service.cli.dev import run_dev

        return await run_dev(settings, stop)

    raise typer.Exit(run_until_stopped(main, stop_timeout_s=settings.stop_timeout_s, exit_with_parent=with_parent))


def _run_part(name: str, settings: Settings) -> None:
    configure_logs(settings)

    async def main(stop: asyncio.Event) -> int:
        from service.bootstrap import Part, run

        await check_schema(settings)
        return await run(settings, frozenset({Part(name)}), stop=stop, on_ready=ready)

    def ready(running: Running) -> None:
        say(READY[name].format(url=running.url))

    raise typer.Exit(run_until_stopped(main, stop_timeout_s=settings.stop_timeout_s))


def register(app: typer.Typer) -> None:
    for command in (dev, serve, consume, keeper):
        app.command()(command)
