"""The proxy of the fault tests does what it says: else the faults of all other tests are imagined."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from tests.fixtures.proxy import ALWAYS, TcpProxy

SOON_S = 5.0
SILENCE_S = 0.15


@dataclass
class Echo:
    """A server that repeats each line, and remembers it."""

    address: str = ""
    heard: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line.strip())
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield echo
    server.close()


@pytest.fixture
def proxy(echo: Echo, make_proxy: Callable[[str], TcpProxy]) -> TcpProxy:
    return make_proxy(echo.address)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of(cls, proxy: TcpProxy) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    def send(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def ask(self, line: bytes, within_s: float = SOON_S) -> bytes:
        self.send(line)
        async with asyncio.timeout(within_s):
            return (await self._reader.readline()).strip()

    def close(self) -> None:
        self._writer.transport.abort()


@pytest.fixture
async def client(proxy: TcpProxy) -> AsyncIterator[Client]:
    client = await Client.of(proxy)
    yield client
    client.close()


async def test_all_passes_when_it_is_healthy(client: Client, echo: Echo) -> None:
    long_line = b"x" * 60_000
    assert await client.ask(b"one") == b"one"
    assert await client.ask(long_line) == long_line
    assert echo.heard == [b"one", long_line]


async def test_the_end_of_a_connection_is_passed_on(proxy: TcpProxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write_eof()
    async with asyncio.timeout(SOON_S):
        assert await reader.read() == b""
    writer.close()


async def test_latency_is_added_in_both_directions(proxy: TcpProxy, client: Client) -> None:
    proxy.delay_s = 0.1
    began = time.monotonic()
    assert await client.ask(b"slow") == b"slow"
    assert time.monotonic() - began >= 0.2


async def test_a_black_hole_accepts_and_never_answers(proxy: TcpProxy, echo: Echo) -> None:
    proxy.swallow()
    client = await Client.of(proxy)
    with pytest.raises(TimeoutError):
        await client.ask(b"lost", SILENCE_S)
    assert echo.heard == []
    client.close()


async def test_a_black_hole_may_open_under_an_open_connection(proxy: TcpProxy, client: Client, echo: Echo) -> None:
    assert await client.ask(b"before") == b"before"
    proxy.swallow()
    with pytest.raises(TimeoutError):
        await client.ask(b"lost", SILENCE_S)
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        await client.ask(b"bytes are missing on this one")
    again = await Client.of(proxy)
    assert await again.ask(b"after") == b"after"
    assert echo.heard == [b"before", b"after"]
    again.close()


async def test_a_reset_hits_open_connections_only(proxy: TcpProxy, client: Client) -> None:
    assert await client.ask(b"before") == b"before"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await client.ask(b"after")
    again = await Client.of(proxy)
    assert await again.ask(b"new") == b"new"
    again.close()


async def test_refused_is_reset_at_once_until_it_heals(proxy: TcpProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError):  # connecting may already fail
        await (await Client.of(proxy)).ask(b"no")
    proxy.heal()
    again = await Client.of(proxy)
    assert await again.ask(b"yes") == b"yes"
    again.close()


async def test_a_reply_is_cut_after_the_server_has_heard_the_request(
    proxy: TcpProxy, client: Client, echo: Echo
) -> None:
    assert await client.ask(b"one") == b"one"
    proxy.cut_replies(1)
    with pytest.raises(ConnectionResetError):
        await client.ask(b"two")
    again = await Client.of(proxy)
    assert await again.ask(b"three") == b"three"
    assert echo.heard == [b"one", b"two", b"three"]
    assert proxy.cut_count == 1
    again.close()


async def test_replies_are_cut_as_often_as_asked_and_always_until_it_heals(proxy: TcpProxy, echo: Echo) -> None:
    async def cut() -> bool:
        client = await Client.of(proxy)
        try:
            return await client.ask(b"again") != b"again"
        except ConnectionResetError:
            return True
        finally:
            client.close()

    proxy.cut_replies(2)
    assert [await cut() for _ in range(3)] == [True, True, False]
    proxy.cut_replies(ALWAYS)
    assert [await cut() for _ in range(5)] == [True] * 5
    proxy.heal()
    assert not await cut()
    assert len(echo.heard) == 9


async def test_only_the_reply_of_a_certain_request_is_cut(proxy: TcpProxy, client: Client, echo: Echo) -> None:
    proxy.cut_replies(1, of=b"COMMIT")
    assert await client.ask(b"BEGIN") == b"BEGIN"
    with pytest.raises(ConnectionResetError):
        await client.ask(b"COMMIT")
    assert echo.heard == [b"BEGIN", b"COMMIT"]


async def test_a_server_that_is_away_is_away_through_the_proxy_too(make_proxy: Callable[[str], TcpProxy]) -> None:
    proxy = make_proxy("127.0.0.1:9")
    with pytest.raises(ConnectionResetError):
        await (await Client.of(proxy)).ask(b"anyone?")
