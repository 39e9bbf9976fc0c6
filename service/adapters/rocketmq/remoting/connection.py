"""One connection to a name server or broker: questions in flight, matched to their answers by number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from ssl import SSLContext

from service.adapters.rocketmq.remoting import frames
from service.adapters.rocketmq.remoting.frames import Frame, MalformedFrame, Request

READ_BUFFER = 256 * 1024
OPAQUE_MAX = 0x7FFF_FFFF
"""A Java int."""


class ConnectionEnded(Exception):
    """The connection is no more, and whether the question was heard is not known."""


class Connection:
    """Made by `open`. Dead for good after the first fault; the owner makes another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._opaque = count(1)
        self._heard = 0
        self._retired = False
        self._ended: str | None = None
        self._listener = asyncio.create_task(self._listen(), name="rocketmq remoting: listen")

    @classmethod
    async def open(cls, host: str, port: int, tls: SSLContext | None) -> Connection:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=READ_BUFFER)
        return cls(reader, writer)

    @property
    def usable(self) -> bool:
        """For a new question."""
        return self._ended is None and not self._retired

    @property
    def finished(self) -> bool:
        return self._listener.done()

    @property
    def heard(self) -> int:
        """Frames so far."""
        return self._heard

    def retire(self) -> None:
        """No new questions; those in flight may still be answered. The last of them ends the connection."""
        self._retired = True
        self._end_if_left()

    async def ask(self, request: Request) -> Frame:
        """Waits as long as its caller lets it. A cancelled question leaves the connection usable."""
        if self._ended is not None:
            raise ConnectionEnded(self._ended)
        opaque = next(self._opaque) & OPAQUE_MAX
        data = frames.encode(request, opaque)
        with self._expected(opaque) as answer:
            self._writer.write(data)
            try:
                await self._writer.drain()
            except OSError as error:
                self._end(str(error) or type(error).__name__)
            return await answer

    @contextmanager
    def _expected(self, opaque: int) -> Iterator[asyncio.Future[Frame]]:
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        try:
            yield answer
        finally:
            del self._waiting[opaque]
            if answer.done() and not answer.cancelled():
                answer.exception()  # nobody may be left to ask for it
            self._end_if_left()

    def _end_if_left(self) -> None:
        if self._retired and not self._waiting:
            self._end("it was given up, for its silence")

    async def close(self) -> None:
        self._end("it was closed")
        self._listener.cancel()
        await asyncio.wait([self._listener])

    async def _listen(self) -> None:
        """Until the first fault. What answers nobody (too late, or a question of the server's) is dropped."""
        try:
            while True:
                frame = await frames.read(self._reader)
                self._heard += 1
                answer = self._waiting.get(frame.opaque) if frame.is_answer else None
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except MalformedFrame as error:
            self._end(f"it does not speak RocketMQ's remoting protocol: {error}")
        except asyncio.IncompleteReadError:
            self._end("the other side closed the connection")
        except OSError as error:
            self._end(str(error) or type(error).__name__)
        finally:
            self._end("the connection was given up")

    def _end(self, why: str) -> None:
        if self._ended is not None:
            return
        self._ended = why
        self._writer.transport.abort()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionEnded(why))
