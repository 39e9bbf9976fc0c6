"""What the demo shows while it runs: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column

from service.cli.demo.figures import Figures, Stopwatch

TICK_S = 0.1
LINE_EVERY_S = 5.0


class Wave(Protocol):
    """What the bar follows."""

    done: int


class Screen:
    """Writes to standard error: standard output is for the result."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    @asynccontextmanager
    async def following(self, what: str, wave: Wave, total: int, figures: Figures) -> AsyncIterator[None]:
        """Show the wave's progress until the block ends."""
        follow = self._bar if self._console.is_terminal else self._lines
        live = asyncio.create_task(follow(what, wave, total, _Live(figures)))
        try:
            yield
        finally:
            live.cancel()
            with suppress(asyncio.CancelledError):
                await live

    @asynccontextmanager
    async def counting(self, what: str, count: Callable[[], str]) -> AsyncIterator[None]:
        """Show how far something has come whose end is not known, until the block ends."""
        self.say(f"{what} …")
        follow = self._spinner if self._console.is_terminal else self._counts
        live = asyncio.create_task(follow(what, count))
        try:
            yield
        finally:
            live.cancel()
            with suppress(asyncio.CancelledError):
                await live

    async def _spinner(self, what: str, count: Callable[[], str]) -> None:
        with self._console.status("") as status:
            while True:
                status.update(f"{what}: {count()}")
                await asyncio.sleep(TICK_S)

    async def _counts(self, what: str, count: Callable[[], str]) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self.say(f"{what}: {count()}")

    async def _bar(self, what: str, wave: Wave, total: int, live: _Live) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=14),
            TaskProgressColumn(),
            TextColumn("{task.fields[live]}", table_column=Column(no_wrap=True)),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(what, total=total, live="")
            try:
                while True:
                    progress.update(task, completed=wave.done, live=live())
                    await asyncio.sleep(TICK_S)
            finally:
                progress.update(task, completed=wave.done, live=live())

    async def _lines(self, what: str, wave: Wave, total: int, live: _Live) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self.say(f"{what}: {wave.done:,} of {total:,}; {live()}")


class _Live:
    """The live figures as one text; the rate is since it was made."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._watch = Stopwatch()
        self._requests_before = figures.requests

    def __call__(self) -> str:
        figures = self._figures
        rate = (figures.requests - self._requests_before) / max(0.001, self._watch.seconds)
        told = f"{figures.accepted:,} won, {figures.refused:,} × sold out"
        return f"{told}, {figures.retried:,} × try again, {rate:,.0f}/s"
