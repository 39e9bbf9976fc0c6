"""Clients that send what no client should, one kind after the other, while the good ones are measured."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle

from bench.load.spec import LoadSpec

LARGE = 1024 * 1024
ANSWER_S = 5.0
SLOW_BYTES, SLOW_PAUSE_S = 40, 0.05

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Hostile:
    """Each act has a connection of its own; what came back is counted by kind."""

    def __init__(self, spec: LoadSpec) -> None:
        self._spec = spec
        self.acts: Counter[str] = Counter()

    async def run(self, until: asyncio.Event) -> None:
        kinds: list[Callable[[Streams], Awaitable[None]]] = [self._malformed, self._large, self._slow, self._half]
        for kind in cycle(kinds):
            if until.is_set():
                return
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(ANSWER_S):
                    streams = await asyncio.open_connection(self._spec.host, self._spec.port)
                    self.acts[kind.__name__.removeprefix("_")] += 1
                    try:
                        await kind(streams)
                    finally:
                        streams[1].close()

    def _head(self, length: int) -> bytes:
        lines = [
            f"POST {self._spec.path} HTTP/1.1",
            f"Host: {self._spec.host}",
            f"Authorization: Bearer {self._spec.bearer}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    async def _malformed(self, streams: Streams) -> None:
        body = b'{"buyer_id": "x", "quantity": [[[['
        await _sent(streams, self._head(len(body)) + body)
        await streams[0].readuntil(b"\r\n\r\n")

    async def _large(self, streams: Streams) -> None:
        await _sent(streams, self._head(LARGE) + b"x" * LARGE)
        await streams[0].readuntil(b"\r\n\r\n")

    async def _slow(self, streams: Streams) -> None:
        for byte in self._head(100)[:SLOW_BYTES]:
            await _sent(streams, bytes([byte]))
            await asyncio.sleep(SLOW_PAUSE_S)

    async def _half(self, streams: Streams) -> None:
        """Says that more comes, and closes its side."""
        await _sent(streams, self._head(100) + b'{"buyer_id"')
        streams[1].write_eof()
        await streams[0].read()


async def _sent(streams: Streams, data: bytes) -> None:
    streams[1].write(data)
    await streams[1].drain()
