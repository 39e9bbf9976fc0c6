"""Runs a long command: the loop, the signals that end it, and the parent it may depend on."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable

Main = Callable[[asyncio.Event], Awaitable[int]]

COLLECT_AT = 10_000
"""New objects between two collections, of Python's 700."""
PARENT_GONE_GRACE_S = 5.0
"""Added to the stop time-out once the parent is gone: after it the process ends whatever still runs."""


def run_until_stopped(main: Main, *, stop_timeout_s: float, exit_with_parent: bool = False) -> int:
    """Run `main` until it returns. SIGTERM and SIGINT set its event; a second SIGINT ends the process at once."""
    import uvloop

    async def supervised() -> int:
        _collect_rarely()
        stop = asyncio.Event()
        _watch_signals(stop)
        if exit_with_parent:
            _watch_parent(stop, stop_timeout_s + PARENT_GONE_GRACE_S)
        return await main(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(supervised())


def _collect_rarely() -> None:
    """What is loaded stays: no collection need look at it. And requests leave little behind that counting references
    does not free, while each look stops them all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AT, *gc.get_threshold()[1:])


def _watch_signals(stop: asyncio.Event) -> None:
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            os._exit(130)
        stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupt)


def _watch_parent(stop: asyncio.Event, deadline_s: float) -> None:
    """Standard input is a pipe that the parent holds open: its end means that the parent is gone, however it died."""
    loop = asyncio.get_running_loop()
    pipe = sys.stdin.fileno()

    def readable() -> None:
        if os.read(pipe, 4096):
            return
        loop.remove_reader(pipe)
        stop.set()
        loop.call_later(deadline_s, os._exit, 1)

    loop.add_reader(pipe, readable)
