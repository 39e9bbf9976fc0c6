"""A connection to MySQL or MariaDB whose waits end, and that is encrypted or not made at all.

aiomysql bounds the TCP connect alone. A server that accepts and says nothing, or a pooled connection that a firewall
has forgotten, would cost each caller its whole deadline. And it takes TLS where the server offers it, and goes on in
clear where it does not: somebody in between has only to leave the offer out.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from typing import Any

from aiomysql.connection import Connection
from pymysql.constants import CLIENT, CR
from pymysql.err import OperationalError

_NEEDS_NOTHING = re.compile(r"[^\x00\n\r\x1a'\\]*")
"""Between single quotes: what PyMySQL would escape beyond it, the double quote, needs no escape there."""


class _BoundedConnection(Connection):  # type: ignore[misc] # it ships no types
    ping_timeout_s: float

    async def ping(self, reconnect: bool = False) -> None:
        """SQLAlchemy asks before it hands out a pooled connection. One lost: all as old as it are replaced."""
        try:
            async with asyncio.timeout(self.ping_timeout_s):
                await super().ping(reconnect)
        except TimeoutError:
            raise OperationalError(CR.CR_SERVER_LOST, f"No answer to a ping within {self.ping_timeout_s:g} s") from None

    def escape_string(self, s: str) -> str:
        """PyMySQL's goes through each character in Python: a seventh of what an order costs its consumer."""
        return s if _NEEDS_NOTHING.fullmatch(s) else super().escape_string(s)

    def _ensure_alive(self) -> None:
        """Before each command."""
        self._forget_closed()
        super()._ensure_alive()

    async def ensure_closed(self) -> None:
        self._forget_closed()
        await super().ensure_closed()

    def _forget_closed(self) -> None:
        """To a server that has gone uvloop lets nothing be written, and raises a RuntimeError that neither aiomysql nor
        SQLAlchemy expects."""
        if self._writer is not None and self._writer.transport.is_closing():
            self.close()

    def abandon(self) -> None:
        """Nobody waits for an answer any more. Closing alone would keep the socket until its last byte is sent, which
        through a dead network takes a quarter of an hour."""
        if self._writer is not None:
            self._writer.transport.abort()
        self.close()

    def _close_on_cancel(self) -> None:
        self.abandon()
        super()._close_on_cancel()


class _TlsConnection(_BoundedConnection):
    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if not self.server_capabilities & CLIENT.SSL:
            raise OperationalError(CR.CR_SSL_CONNECTION_ERROR, "The server offers no TLS")


async def connect(*, ping_timeout_s: float = 1.0, **options: Any) -> Connection:
    """In place of `aiomysql.connect`: one deadline, `connect_timeout`, for TCP, TLS, login and session settings."""
    connection = (_TlsConnection if options.get("ssl") else _BoundedConnection)(**options)
    connection.ping_timeout_s = ping_timeout_s
    with ExitStack() as unless_connected:
        unless_connected.callback(connection.abandon)
        try:
            async with asyncio.timeout(connection.connect_timeout):
                await connection._connect()
        except TimeoutError:
            why = f"No connection within {connection.connect_timeout:g} s"
            raise OperationalError(CR.CR_CONN_HOST_ERROR, why) from None
        unless_connected.pop_all()
    return connection
