"""Connections to Redis: at most so many, each with one call at a time.

redis-py's own pool waits for a lock to take a connection back: a call that is cancelled twice, by its deadline and by
its caller, is cancelled there too, and its place is lost for ever (seen). And it closes idle connections while others
take them, whose calls then fail (seen). Here a place is given back without waiting, and what is closed has left the
pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

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
        self._age = 0
        """How often the pool was told to forget."""
        self._age_of: dict[AbstractConnection, int] = {}
        """What it was when a connection began to be opened; idle ones and those in use."""
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
            age = self._age
            connection = await self._open()
        except BaseException:
            self._give_place_back()
            raise
        self._age_of[connection] = age
        return connection

    async def give_back(self, connection: AbstractConnection, *, keep: bool) -> None:
        """`keep`: the reply was read to its end. Otherwise nobody else shall find it there."""
        self._give_place_back()
        if keep and connection.is_connected and self._age_of[connection] == self._age:
            self._idle.append(connection)
        else:
            await self._close(connection)

    async def forget(self) -> None:
        """Whoever takes one from now on gets a new one."""
        idle, self._idle = self._idle, []
        self._age += 1
        for connection in idle:
            await self._close(connection)

    async def _take_place(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise PoolFull from None
        self.in_use += 1

    def _give_place_back(self) -> None:
        self.in_use -= 1
        self._places.release()

    async def _close(self, connection: AbstractConnection) -> None:
        self._age_of.pop(connection, None)
        await connection.disconnect(nowait=True)


async def _is_usable(connection: AbstractConnection) -> bool:
    """Not one that the server has closed, nor one with something to read that nobody asked for."""
    try:
        return connection.is_connected and not await connection.can_read()
    except (RedisError, OSError):
        return False
