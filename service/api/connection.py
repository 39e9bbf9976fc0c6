"""A connection's manners. uvicorn bounds how long one may be idle between two requests, and not how long a request may
take to arrive: whoever sends a byte a second holds a connection for ever. Here headers have a time and a size; the body
has them in http.py."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S = 10.0
"""From the connection, or from a request's first byte, to the end of its headers."""
WHOLE = "dropgate.whole"
"""In the scope once all of a request has come: mostly with its headers, and then nobody need wait for its body."""
HEADERS_MAX = 64 * 1024
"""Bytes. A body that comes in one piece with them is not counted."""


class BoundedHeaders(HttpToolsProtocol):
    """Closes the connection without an answer: who is that slow, or sends that much, is no client of this API."""

    _due: asyncio.TimerHandle | None = None
    _bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._due is not None:
            self._bytes += len(data)
            if self._bytes > HEADERS_MAX:
                self._close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.scope[WHOLE] = True  # type: ignore[literal-required] # a key of ours
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._due is None:
            self._bytes = 0
            self._due = self.loop.call_later(HEADERS_S, self._close)

    def _headers_came(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _close(self) -> None:
        self._headers_came()
        if not self.transport.is_closing():
            self.transport.close()
