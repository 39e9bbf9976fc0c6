"""Threads for calls that block: bounded in number, daemons, and left behind by whoever stops waiting."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_Job = Callable[[], None]


class Crew:
    """Belongs to one event loop. As many jobs at a time as it has threads; more wait, in the order in which they
    came. How many wait is bounded by their callers' deadlines: a job looks first whether it is still wanted."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What it returns, or raises. Cancelling it stops no thread."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._open += 1
        self._idle.clear()
        if self._threads < min(self._open, self._size):
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name} {self._threads}", daemon=True).start()
        self._jobs.put(lambda: self._run(work, done))
        return done

    async def until_idle(self) -> None:
        await self._idle.wait()

    def dismiss(self) -> None:
        """Each thread ends after the jobs that are there."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _run(self, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        outcome: tuple[Callable[[Any], None], object]
        try:
            outcome = (done.set_result, work())
        except Exception as error:  # noqa: BLE001 - handed over, whatever it is
            outcome = (done.set_exception, error)
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._settle, done, *outcome)

    def _settle(self, done: asyncio.Future[Any], set_: Callable[[Any], None], value: object) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()
        if not done.done():
            set_(value)
            if isinstance(value, Exception):
                done.exception()  # nobody may be left to ask for it
