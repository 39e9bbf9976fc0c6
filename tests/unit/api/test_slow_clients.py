"""Who sends a byte a second holds no connection for long, and whoever is quick beside them is served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from service.api import connection, http
from service.api.app import create_app, create_ops_app
from service.api.server import HttpServer
from tests.unit.api.fakes import SALE, World, key

PATIENCE_S = 1.0
GOES_ON_S = 8.0
HEAD = f"POST /v1/sales/{SALE}/reservations HTTP/1.1\r\nHost: dropgate\r\nContent-Type: application/json\r\n"
BEARER = f"Authorization: {key('storefront')['Authorization']}\r\n"
BODY = '{"buyer_id":"anna","quantity":1}'

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADERS_S", PATIENCE_S)
    monkeypatch.setattr(http, "BODY_S", PATIENCE_S)


@asynccontextmanager
async def served(connections_max: int | None = None) -> AsyncIterator[Connect]:
    server = HttpServer(create_app(World().services()), "127.0.0.1", 0, connections_max=connections_max)
    serving = asyncio.create_task(server.serve())
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        opened.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in opened:
            writer.close()
        server.stop()
        await serving


async def drip(writer: asyncio.StreamWriter, text: str) -> None:
    for byte in text.encode():
        if writer.is_closing():
            return
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)


async def ended(reader: asyncio.StreamReader) -> tuple[bytes, float]:
    """What it heard until the connection was closed, and how long that took."""
    began_s = time.monotonic()
    async with asyncio.timeout(GOES_ON_S):
        try:
            heard = await reader.read()
        except ConnectionError:
            heard = b""
    return heard, time.monotonic() - began_s


@pytest.mark.parametrize("sent", ["", "G", HEAD])
async def test_headers_that_do_not_come_end_the_connection(sent: str) -> None:
    async with served() as connect:
        reader, writer = await connect()
        dripping = asyncio.create_task(drip(writer, sent))
        heard, took_s = await ended(reader)
        await dripping
    assert heard == b""
    assert PATIENCE_S * 0.9 < took_s < GOES_ON_S


async def test_the_second_requests_headers_have_their_time_too() -> None:
    async with served() as connect:
        reader, writer = await connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: dropgate\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"}")
        await asyncio.sleep(PATIENCE_S * 1.5)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: dropgate\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"}"), "between two requests it may rest"
        writer.write(b"GET /heal")
        heard, _ = await ended(reader)
    assert heard == b""


async def test_headers_without_an_end_are_cut_off_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADERS_S", GOES_ON_S)
    async with served() as connect:
        reader, writer = await connect()
        writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X-Padding: 1\r\n" * 10_000)
        heard, took_s = await ended(reader)
    assert (heard, took_s < GOES_ON_S) == (b"", True)


async def test_a_body_that_does_not_come_is_answered_408() -> None:
    async with served() as connect:
        reader, writer = await connect()
        writer.write(f"{HEAD}{BEARER}Content-Length: {len(BODY)}\r\n\r\n".encode())
        dripping = asyncio.create_task(drip(writer, BODY[:-1]))
        heard, took_s = await ended(reader)
        await dripping
    assert heard.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in heard
    assert took_s < GOES_ON_S


async def test_who_is_quick_is_served_beside_many_that_are_not() -> None:
    async with served() as connect:
        slow = [await connect() for _ in range(50)]
        for _, writer in slow:
            writer.write(HEAD.encode())
        reader, writer = await connect()
        writer.write(f"{HEAD}{BEARER}Content-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
        assert [heard for heard, _ in await asyncio.gather(*[ended(reader) for reader, _ in slow])] == [b""] * 50


async def test_beyond_the_most_connections_a_request_hears_503_until_some_are_gone() -> None:
    async with served(connections_max=10) as connect:
        idle = [await connect() for _ in range(10)]
        reader, writer = await connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: dropgate\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
        await asyncio.gather(*[ended(reader) for reader, _ in idle])
        reader, writer = await connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: dropgate\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_metrics_on_a_port_of_their_own_are_not_on_the_buyers() -> None:
    world = World(metrics_here=False)
    async with world.client() as client:
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.get("/readyz")).status_code == 200
    assert {route.path for route in create_ops_app().routes} == {"/healthz", "/metrics"}  # type: ignore[attr-defined]
