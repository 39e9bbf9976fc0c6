"""`dropgate demo`: options, the folder, the child process, the result."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import AsJson, Failure, console, print_json, say, say_error, table, whole

if TYPE_CHECKING:
    from service.cli.demo.report import Report
    from service.cli.demo.screen import Screen
    from service.cli.demo.server import Server
    from service.cli.demo.story import Cast


def demo(  # noqa: PLR0917 - Typer's options are arguments
    buyers: Annotated[
        int,
        typer.Option(
            "--buyers",
            metavar="PEOPLE",
            parser=whole("--buyers", least=1, most=1_000_000),
            help="People in the rush.",
        ),
    ] = 20_000,
    stock: Annotated[
        int | None,
        typer.Option(
            "--stock",
            metavar="UNITS",
            parser=whole("--stock", least=1, most=1_000_000),
            help="Units for sale (default: 1,000, or one for 20 people where that is less).",
        ),
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder of the demo; emptied first if a demo made it.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same buyers.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", metavar="", help="Never empty the folder of an earlier demo: use a fresh one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """See a whole sale on this machine: a rush over HTTP, payments, units that come back, and the audit.

    Exit code 0 only if the books balance and no buyer was told two things that cannot both be true.
    """
    from service.cli.demo.home import demo_home
    from service.cli.demo.plan import payment_window_s, stock_for
    from service.cli.demo.screen import Screen
    from service.cli.demo.server import dev_server
    from service.cli.demo.shop import DemoFailed
    from service.cli.demo.story import Cast

    screen = Screen(console(stderr=True))
    cast = Cast(buyers=buyers, stock=stock or stock_for(buyers), seed=seed)
    window_s = payment_window_s(min(cast.buyers, cast.stock))
    try:
        with demo_home(home, keep=keep) as folder, dev_server(folder, port, window_s) as server:
            report = _run(server, cast, screen)
    except DemoFailed as error:
        raise Failure(str(error)) from None
    _print(report, server, as_json=as_json)
    raise typer.Exit(0 if report.ok else 1)


def _run(server: Server, cast: Cast, screen: Screen) -> Report:
    import uvloop

    from service.cli.demo.server import wait_for_url

    screen.say("Starting Dropgate on the embedded stack …")
    url = wait_for_url(server)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_tell(server, url, cast, screen))


async def _tell(server: Server, url: str, cast: Cast, screen: Screen) -> Report:
    """Tell the story, unless the server ends meanwhile."""
    from service.cli.demo.figures import Figures
    from service.cli.demo.shop import shop
    from service.cli.demo.story import Story

    figures = Figures()
    async with shop(url, server.keys(), figures) as open_shop:
        story = asyncio.create_task(Story(shop=open_shop, cast=cast, screen=screen, figures=figures).tell())
        try:
            while not story.done():
                server.url()
                await asyncio.wait({story}, timeout=0.5)
            return story.result()
        finally:
            story.cancel()
            await asyncio.wait({story})


def _print(report: Report, server: Server, *, as_json: bool) -> None:
    command = f"{our_name()} dev --home {shlex.quote(str(server.home))}"
    if as_json:
        print_json(report.view() | {"home": str(server.home), "log": str(server.log), "go_on": command})
        return
    title = "The sale is over" if report.ok else "The sale is over, and something is wrong"
    console().print(table(title, ("what", "how many", "which means"), report.rows(), right=("how many",)))
    for problem in report.problems():
        say_error(f"✗ {problem}")
    say("✓ Balanced, and nobody was contradicted." if report.ok else "✗ NOT in order.")
    say(f"\nDatabase, keys and log are in {server.home}")
    say(f"To go on from there, with its API and ledger:  {command}")


def our_name() -> str:
    """How this command was started, so that what is printed can be pasted: `dropgate` may not be on the path."""
    started_as = sys.argv[0]
    if Path(started_as).name != "dropgate":
        return f"{shlex.quote(sys.executable)} -m service"
    found = shutil.which("dropgate")
    on_path = found is not None and Path(found).resolve() == Path(started_as).resolve()
    return "dropgate" if on_path else shlex.quote(started_as)


def register(app: typer.Typer) -> None:
    app.command()(demo)
