"""Requests that no client should send, by a clock and one kind after the other, while the good ones are measured."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import cycle

from bench.load.spec import LoadSpec

LARGE = 1024 * 1024
ANSWER_S = 5.0
SLOW_BYTES, SLOW_PAUSE_S = 20, 0.05
"""A slow one holds its connection for a second: at the rates of this bench some hundred are open at a time."""
OPEN_MAX = 512
"""At once, of all kinds: with the good ones well below the 1,024 files that a process may have."""
TICK_S = 0.001
LEFT_OUT, UNCONNECTED = "left out", "not connected"
"""Acts that were due and did not take place: OPEN_MAX were open, or the server took no connection."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Kind = Callable[[Streams], Awaitable[None]]


class Hostile:
    """Each act has a connection of its own. `acts`: by kind, those that were due in the measured time."""

    def __init__(self, spec: LoadSpec) -> None:
        self._spec = spec
        self._large_bytes = self._head(LARGE) + b"x" * LARGE if spec.hostile_per_s else b""
        self._open = 0
        self.acts: Counter[str] = Counter()
        self._kinds: Mapping[str, Kind] = {
            "malformed": self._malformed,
            "of 1 MiB": self._large,
            "slow": self._slow,
            "half-closed": self._half,
        }

    async def run(self, measured_from_s: float, until_s: float) -> None:
        """Until then, and until each of them has ended: ANSWER_S at most."""
        if not self._spec.hostile_per_s:
            return
        due_s, kinds = time.monotonic(), cycle(self._kinds)
        async with asyncio.TaskGroup() as group:
            while (now_s := time.monotonic()) < until_s:
                while due_s <= now_s:
                    counted = due_s >= measured_from_s
                    if self._open < OPEN_MAX:
                        self._open += 1
                        group.create_task(self._act(next(kinds), counted=counted))
                    else:
                        self.acts[LEFT_OUT] += counted
                    due_s += 1 / self._spec.hostile_per_s
                await asyncio.sleep(TICK_S)

    async def _act(self, kind: str, *, counted: bool) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                streams = await asyncio.open_connection(self._spec.host, self._spec.port)
        except (OSError, TimeoutError):
            self.acts[UNCONNECTED] += counted
        else:
            self.acts[kind] += counted
            await self._done(self._kinds[kind], streams)
        finally:
            self._open -= 1

    @staticmethod
    async def _done(kind: Kind, streams: Streams) -> None:
        """What it hears is not looked at; nor whether it is thrown out, which is the server's right."""
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(ANSWER_S):
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
        await _sent(streams, self._large_bytes)
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
