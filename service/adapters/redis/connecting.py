"""Opens connections to one Redis: the server of the URL, or the master that its Sentinels name."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from service.adapters.redis import info, trouble
from service.adapters.redis.options import RedisOptions
from service.adapters.redis.sentinel import Sentinels, ask
from service.adapters.redis.url import RedisUrl, Server, UnixSocket, Watched
from service.domain.errors import StockRefused

_MANNERS: dict[str, Any] = {
    "socket_timeout": None,
    "socket_connect_timeout": None,
    "retry": Retry(NoBackoff(), 0),
    "retry_on_error": [],
    "health_check_interval": 0,
    "decode_responses": False,
    "protocol": 2,
    "driver_info": None,
}
"""No time-outs of the library's: each would be a `wait_for`, which may lose a cancellation before Python 3.12. No
second try, and nothing asked that we have no use for."""


class Connector:
    """Each within `connect_timeout_s` as a whole: TCP, TLS, user, database, and a first answer."""

    def __init__(self, url: RedisUrl, options: RedisOptions) -> None:
        self._url = url
        self._options = options
        self._tls = (options.tls or ssl.create_default_context()) if url.tls else None
        self._sentinels: Sentinels | None = None
        if isinstance(url.place, Watched):
            ask = self._to_sentinel
            self._sentinels = Sentinels(url.place, ask, tls=url.tls, timeout_s=options.connect_timeout_s)

    async def open(self) -> AbstractConnection:
        """Ready for a call. StockRefused: says why not, and the remedy."""
        place = self._url.place
        if self._sentinels is not None:
            place = await self._sentinels.master()
        assert not isinstance(place, Watched)  # noqa: S101 - what is watched has Sentinels
        connection = self._to_redis(place)
        async with _closed_on_failure(connection):
            await self._connect(connection, place)
        return connection

    async def close(self) -> None:
        if self._sentinels is not None:
            await self._sentinels.close()

    async def _connect(self, connection: AbstractConnection, place: Server | UnixSocket) -> None:
        timeout_s = self._options.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
                await self._greet(connection, place)
        except TimeoutError:
            raise trouble.silent(timeout_s, tls=self._url.tls) from None
        except (RedisError, OSError) as error:
            raise trouble.not_connected(error, tls=self._url.tls) from error

    async def _greet(self, connection: AbstractConnection, server: Server | UnixSocket) -> None:
        """A first answer, before anything is asked that may happen: a server can refuse a connection that it took."""
        if self._sentinels is None:
            await ask(connection, "PING")
            return
        role = info.parsed(await ask(connection, "INFO", "replication")).get("role")
        if role != "master":
            why = f"the Sentinels name {server} as the master, and its role is {role}"
            raise StockRefused("redis", why, "it passes with the failover; if it does not, look at the Sentinels")

    def _to_redis(self, place: Server | UnixSocket) -> AbstractConnection:
        its = {"db": self._url.db, "username": self._url.username, "password": self._url.password}
        if isinstance(place, UnixSocket):
            return UnixDomainSocketConnection(path=place.path, **its, **_MANNERS)
        return self._to_server(place, its)

    def _to_sentinel(self, sentinel: Server) -> AbstractConnection:
        its = {"username": self._options.sentinel_username, "password": self._options.sentinel_password}
        return self._to_server(sentinel, its)

    def _to_server(self, server: Server, its: dict[str, Any]) -> AbstractConnection:
        its |= {"host": server.host, "port": server.port, **_MANNERS}
        if self._tls is None:
            return Connection(**its)
        connection = SSLConnection(**its)
        connection.ssl_context.context = self._tls  # made once: it reads every authority of the system
        return connection


@asynccontextmanager
async def _closed_on_failure(connection: AbstractConnection) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:  # cancelled or failed: nobody else knows of this connection
        await connection.disconnect(nowait=True)
        raise
