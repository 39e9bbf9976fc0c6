"""One keep-alive connection with at most one request under way; it knows as much HTTP as an answer of ours needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_CODE = re.compile(rb'"code": ?"(\w+)"')
_END = b"\r\n\r\n"

Answered = Callable[["Connection", int, str], None]
"""The connection, the status and the problem's code (of a success: its status)."""
Lost = Callable[["Connection"], None]


class Connection(asyncio.Protocol):
    """`answered` is called inside the loop's read: no future, no task a request. `heard`: an answer that counts."""

    def __init__(self, answered: Answered, lost: Lost) -> None:
        self._answered = answered
        self._lost = lost
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[None] | None = None
        self.number = -1
        self.due_s = 0.0
        self.heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def greet(self, data: bytes) -> None:
        """Ask something first, and wait for the answer, whatever it is: a server has accepted us only then, though
        connected we are since its kernel said so. ConnectionError: there came none."""
        self._greeting = asyncio.get_running_loop().create_future()
        self.send(data)
        await self._greeting
        self._greeting = None

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(_END)
        if head < 0:
            return
        length = _LENGTH.search(self._buffer, 0, head + 2)
        end = head + len(_END) + (int(length[1]) if length else 0)
        if len(self._buffer) < end:
            return
        answer, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._greeting is not None:
            self._greeting.set_result(None)
            return
        status = int(answer[9:12])
        self._answered(self, status, _code(status, answer, head))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectionError(f"the server hung up before the first answer: {exc}"))
        self._lost(self)


def _code(status: int, answer: bytes, head: int) -> str:
    if status < 300:
        return str(status)
    found = _CODE.search(answer, head)
    return found[1].decode() if found else str(status)
