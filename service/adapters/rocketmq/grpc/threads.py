"""What blocks, off the event loop and never on its default executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from service.domain.errors import BrokerUnavailable

T = TypeVar("T")


async def in_thread(work: Callable[[], T], name: str) -> T:
    """Work that blocks, on a daemon thread: whoever stops waiting leaves it behind, and it keeps no process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(set_: Callable[[Any], None], value: object) -> None:
        if not done.done():
            set_(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, work())
        except Exception as error:  # noqa: BLE001 - handed over, whatever it is
            outcome = (done.set_exception, error)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return await done
    except Exception as error:  # the package raises bare ones
        raise BrokerUnavailable("rocketmq5", repr(error)) from error
