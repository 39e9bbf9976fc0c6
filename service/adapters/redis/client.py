"""Calls to Redis or Valkey: each is sent once, within a budget, and says whether it can have happened.

redis-py retries by itself, ten times in its newest releases: a script whose reply was lost would run twice (design
§3.1 step 5). Only its connections and its parser are used here.
"""

from __future__ import annotations

import asyncio

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError

from service.adapters.redis import trouble
from service.adapters.redis.connecting import Connector
from service.adapters.redis.options import RedisOptions
from service.adapters.redis.pool import Pool, PoolFull
from service.adapters.redis.url import parse
from service.domain.errors import StockRefused, StockUnavailable

__all__ = ["RedisClient", "RedisOptions"]

FRESH_S = 0.5
"""A connection so young leads to the server that is meant now."""

_FULL = "raise DROPGATE_REDIS_POOL_MAX if this stays while Redis answers quickly"


class RedisClient:
    """To one server, or to the master of a service that Sentinels watch. ValueError: the URL cannot be used."""

    def __init__(self, url: str, options: RedisOptions | None = None) -> None:
        self.options = options or RedisOptions()
        self._connector = Connector(parse(url), self.options)
        self._pool = Pool(self._connector.open, size=self.options.pool_max, wait_s=self.options.pool_wait_s)

    async def execute(self, *command: str | bytes | int) -> object:
        """Send it once. StockRefused: it was not done. Another StockUnavailable: it may have been.

        NoScriptError passes: that script did not run."""
        connection = await self._connection()
        answered = False
        try:
            reply = await self._ask(connection, command)
            answered = True
        finally:
            await self._pool.give_back(connection, keep=answered)
        if isinstance(reply, RedisError):
            await self._refuse(reply)
        return reply

    async def look_again(self) -> None:
        """The next calls go to the server of now: on connections that are no older than FRESH_S. Calls under way stay
        undisturbed."""
        await self._pool.forget(older_than_s=FRESH_S)

    async def healthy(self) -> bool:
        """Whether the server answers a PING within its time-out."""
        try:
            await self.execute("PING")
        except StockUnavailable:
            return False
        return True

    @property
    def in_use(self) -> int:
        """Connections that carry a call now; at most `pool_max`."""
        return self._pool.in_use

    async def close(self) -> None:
        await self._pool.close()
        await self._connector.close()

    async def _connection(self) -> AbstractConnection:
        try:
            return await self._pool.take()
        except PoolFull:
            why = f"all {self.options.pool_max} connections are taken"
            raise StockRefused("redis", why, _FULL) from None

    async def _ask(self, connection: AbstractConnection, command: tuple[str | bytes | int, ...]) -> object:
        """The reply, an error reply too. StockUnavailable: there is none."""
        try:
            async with asyncio.timeout(self.options.timeout_s):
                await connection.send_command(*command, check_health=False)
                reply: object = await connection.read_response()
                return reply
        except TimeoutError:
            raise StockUnavailable("redis", f"no answer within {self.options.timeout_s:g} s") from None
        except RedisError as error:
            if trouble.is_reply(error):
                return error
            raise trouble.in_doubt(error) from error
        except OSError as error:
            raise trouble.in_doubt(error) from error

    async def _refuse(self, error: RedisError) -> None:
        if isinstance(error, NoScriptError):
            raise error
        if trouble.is_change_of_role(error):
            await self._pool.forget()
        raise trouble.refusal(error) from error
