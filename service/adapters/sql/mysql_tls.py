"""TLS to MySQL and MariaDB, or no connection at all.

aiomysql takes TLS where the server offers it, and goes on in clear where it does not: somebody in between has only to
leave the offer out. Here a server without TLS is an error, before the user's name is sent.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiomysql.connection import Connection
from pymysql.constants import CLIENT, CR
from pymysql.err import OperationalError


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """`ca`: whom to trust, else the system's authorities. `cert` and `key`: who we are, where the server asks for it.
    Not `verify`: encrypted, but to whoever answers."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """OSError (ssl.SSLError among them) where a file cannot be used."""
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert is not None:
        context.load_cert_chain(files.cert, files.key)
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _TlsConnection(Connection):  # type: ignore[misc] # it ships no types
    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if not self.server_capabilities & CLIENT.SSL:
            raise OperationalError(CR.CR_SSL_CONNECTION_ERROR, "The server offers no TLS")


async def connect(**options: Any) -> Connection:
    """In place of `aiomysql.connect`."""
    connection = _TlsConnection(**options)
    await connection._connect()
    return connection
