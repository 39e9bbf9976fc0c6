"""uvicorn inside a loop that is ours: our signals, our socket, our end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from service.api.connection import BoundedHeaders
from service.domain.errors import SettingRefused

BACKLOG = 2048
ACCEPTED_A_TURN = 16
"""Connections that a turn of the loop takes from the backlog: uvloop takes one for each descriptor that listens (libuv
does since 1.45), and with one of them half of a crowd of a thousand was still unaccepted after 9 s. A new connection
costs 30 µs more than with one (150 instead of 120)."""
KEEP_ALIVE_S = 30
GRACE_S = 5
"""Requests in flight at a stop have this long: longer than any answer takes."""


class HttpServer:
    """Listens from the moment it is made: a free port is known before anything is served. With more connections than
    `connections_max` every request hears 503, in text, until some are gone."""

    def __init__(self, app: ASGIApp, host: str, port: int, *, connections_max: int | None = None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise SettingRefused("host and port", f"cannot listen on {host}:{port}: {error.strerror}") from error
        config = uvicorn.Config(
            app,
            http=BoundedHeaders,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody is asked where he comes from
            limit_concurrency=connections_max,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            backlog=BACKLOG,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(self) -> None:
        """Until `stop`: then the listener closes, and requests in flight are answered."""
        again = (self._socket.dup() for _ in range(ACCEPTED_A_TURN - 1))
        await self._server.serve(sockets=[self._socket, *again])

    def stop(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the command line, which stops every part in its order."""
        yield
