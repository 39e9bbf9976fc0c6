"""One connection pool to Redis or Valkey, with every time-out explicit and no retry by the library.

redis-py retries by itself, ten times in its newest releases: a script whose reply was lost would run twice (design
§3.1 step 5).
A call that is cancelled or times out leaves a reply pending on its connection; redis-py drops such a connection, and
tests/integration/test_redis_client.py holds it to that.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, MasterDownError, NoScriptError, ReadOnlyError, RedisError

from service.domain.errors import StockUnavailable

MOVED_ON = (ReadOnlyError, BusyLoadingError, MasterDownError)
"""The server is not the master any more, or not yet: the next call shall look the address up again."""


@dataclass(frozen=True, kw_only=True)
class RedisOptions:
    """Seconds, each a bound of its own; `budget_s` bounds a whole call."""

    timeout_s: float = 1.0
    connect_timeout_s: float = 1.0
    pool_max: int = 32
    pool_wait_s: float = 0.25

    @property
    def budget_s(self) -> float:
        return self.pool_wait_s + self.connect_timeout_s + self.timeout_s


class RedisClient:
    """redis://, rediss:// (TLS) and unix:// URLs, with user, password and database in them."""

    def __init__(self, url: str, options: RedisOptions | None = None) -> None:
        self.options = options or RedisOptions()
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=self.options.pool_max,
            timeout=self.options.pool_wait_s,
            socket_timeout=self.options.timeout_s,
            socket_connect_timeout=self.options.connect_timeout_s,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
            decode_responses=False,
            protocol=2,
            driver_info=None,
        )
        self._redis = Redis(connection_pool=self._pool)

    async def execute(self, *command: str | bytes | int) -> object:
        """Send it once. StockUnavailable whatever goes wrong, save NoScriptError: that one is known not to have run."""
        try:
            async with asyncio.timeout(self.options.budget_s):
                reply = await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
                return cast(object, reply)
        except NoScriptError:
            raise
        except MOVED_ON as error:
            await self._pool.disconnect(inuse_connections=False)
            raise StockUnavailable("redis", str(error)) from error
        except (RedisError, OSError, TimeoutError) as error:
            raise StockUnavailable("redis", str(error) or type(error).__name__) from error

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
        return len(self._pool._in_use_connections)  # redis-py has no public count

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()
