"""Connections to Redis: at most so many, each with one call at a time.

redis-py's own pool waits for a lock to take a connection back: a call that is cancelled twice, by its deadline and by
its caller, is cancelled there too, and its place is lost for ever (seen). And it closes idle connections while others
take them, whose calls then fail (seen). Here a place is given back without waiting, and what is closed has left the
pool.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from service.observability import metrics

LEAVE_S = 0.5
"""For the last words of TLS."""

Open = Callable[[], Awaitable[AbstractConnection]]


class PoolFull(Exception):
    """All connections carry a call, and none came back in time."""


class Pool:
    """`open_` makes a connection that is ready for a call. One that was forgotten meanwhile is closed when it comes
    back."""

    def __init__(self, open_: Open, *, size: int, wait_s: float) -> None:
        self._open = open_
        self._wait_s = wait_s
        self._places = asyncio.Semaphore(size)
        self._idle: list[AbstractConnection] = []
        self._opened_at_s: dict[AbstractConnection, float] = {}
        """Of idle ones and of those in use: when opening began."""
        self._valid_from_s = -math.inf
        """What was opened before is closed when it comes back."""
        self.in_use = 0

    async def take(self) -> AbstractConnection:
        """One that is ready for a call. PoolFull; or what opening raises."""
        await self._take_place()
        try:
            while self._idle:
                connection = self._idle.pop()
                if await _is_usable(connection):
                    return connection
                await self._close(connection)
            began_s = time.monotonic()
            connection = await self._open()
        except BaseException:
            self._give_place_back()
            raise
        self._opened_at_s[connection] = began_s
        return connection

    async def give_back(self, connection: AbstractConnection, *, keep: bool) -> None:
        """`keep`: the reply was read to its end. Otherwise nobody else shall find it there."""
        self._give_place_back()
        opened_at_s = self._opened_at_s.get(connection, -math.inf)
        if keep and connection.is_connected and opened_at_s >= self._valid_from_s:
            self._idle.append(connection)
        else:
            await self._close(connection)

    async def forget(self, *, older_than_s: float = 0.0) -> None:
        """Whoever takes one from now on gets none that is older."""
        self._valid_from_s = max(self._valid_from_s, time.monotonic() - older_than_s)
        idle = self._idle
        self._idle = [it for it in idle if self._opened_at_s[it] >= self._valid_from_s]
        for connection in set(idle).difference(self._idle):
            await self._close(connection)

    async def close(self) -> None:
        """What is idle takes its leave; what is in use is closed when it comes back."""
        self._valid_from_s = math.inf
        idle, self._idle = self._idle, []
        self._opened_at_s.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await asyncio.gather(*[connection.disconnect() for connection in idle], return_exceptions=True)

    async def _take_place(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise PoolFull from None
        self.in_use += 1
        metrics.REDIS_IN_USE.inc()

    def _give_place_back(self) -> None:
        self.in_use -= 1
        metrics.REDIS_IN_USE.dec()
        self._places.release()

    async def _close(self, connection: AbstractConnection) -> None:
        self._opened_at_s.pop(connection, None)
        await connection.disconnect(nowait=True)


async def _is_usable(connection: AbstractConnection) -> bool:
    """Not one that the server has closed, nor one with something to read that nobody asked for."""
    try:
        return connection.is_connected and not await connection.can_read()
    except (RedisError, OSError):
        return False
