"""TLS to a real Redis and to its Sentinels: verified by default; what is wrong is said, within the time of a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from service.adapters.redis.client import RedisClient, RedisOptions
from service.adapters.redis.tls import TlsFiles, context_of
from service.domain.errors import StockRefused, StockUnavailable
from tests.servers.ports import free_ports
from tests.servers.redis7 import Redis
from tests.servers.sentinel import SERVICE, Sentinel

pytestmark = pytest.mark.server

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@contextmanager
def _runner(loop_factory: LoopFactory) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        yield runner
        runner.run(asyncio.sleep(0.1))  # a refused connection is not waited for: the last words of its TLS are


class Place:
    """A Redis with a TLS port beside its plain one, and the files of whoever speaks to it."""

    def __init__(self, server: Redis, port: int, files: Path) -> None:
        self.server = server
        self.port = port
        self.files = files

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    def trusting(self, ca: str = "ca", client: str | None = None, *, verify: bool = True) -> RedisOptions:
        return options(self.files, ca, client, verify=verify)


def options(files: Path, ca: str | None, client: str | None = None, *, verify: bool = True) -> RedisOptions:
    its = TlsFiles(
        ca=None if ca is None else files / f"{ca}.pem",
        cert=None if client is None else files / f"{client}.pem",
        key=None if client is None else files / f"{client}.key",
        verify=verify,
    )
    return RedisOptions(tls=context_of(its), timeout_s=2.0, connect_timeout_s=2.0)


def tls_settings(files: Path, port: int, name: str, *, asks: str) -> dict[str, Any]:
    return {
        "tls-port": port,
        "tls-cert-file": files / f"{name}.pem",
        "tls-key-file": files / f"{name}.key",
        "tls-ca-cert-file": files / "ca.pem",
        "tls-auth-clients": asks,
    }


@pytest.fixture
def make_place(make_redis7: Callable[..., Redis], certificates: Path) -> Callable[..., Place]:
    def make(name: str = "server", *, asks: str = "no") -> Place:
        port = free_ports()
        settings = tls_settings(certificates, port, name, asks=asks)
        flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        return Place(make_redis7(*flags), port, certificates)

    return make


async def _whoami(url: str, its: RedisOptions) -> bytes:
    client = RedisClient(url, its)
    try:
        reply = await client.execute("ACL", "WHOAMI")
        assert isinstance(reply, bytes)
        return reply
    finally:
        await client.close()


async def _refusal(url: str, its: RedisOptions) -> StockUnavailable:
    client = RedisClient(url, its)
    began = time.monotonic()
    try:
        with pytest.raises(StockRefused) as refused:
            await client.execute("ACL", "WHOAMI")
        assert time.monotonic() - began < its.budget_s
        assert client.in_use == 0
        return refused.value
    finally:
        await client.close()


@LOOPS
def test_a_server_of_a_trusted_authority_is_spoken_to(
    make_place: Callable[..., Place], loop_factory: LoopFactory
) -> None:
    place = make_place()
    place.server.call("ACL", "SETUSER", "anna", "on", ">secret", "~*", "+@all")
    with _runner(loop_factory) as runner:
        assert runner.run(_whoami(place.url, place.trusting())) == b"default"
        as_anna = place.url.replace("://", "://anna:secret@")
        assert runner.run(_whoami(as_anna, place.trusting())) == b"anna"
        assert runner.run(_whoami(place.url, place.trusting("other", verify=False))) == b"default"
        wrong = runner.run(_refusal(place.url.replace("://", "://anna:wrong@"), place.trusting()))
        assert (wrong.why or "").startswith("it refuses the user or the password (")


@LOOPS
def test_a_server_of_another_authority_is_not_trusted(
    make_place: Callable[..., Place], loop_factory: LoopFactory
) -> None:
    place = make_place()
    with _runner(loop_factory) as runner:
        for its in (place.trusting("other"), options(place.files, None), RedisOptions()):
            error = runner.run(_refusal(place.url, its))
            assert (error.why or "").startswith("its certificate is not trusted: "), error
            assert error.remedy == (
                "name its authority by DROPGATE_REDIS_TLS_CA, and the server as its certificate does"
            )


@LOOPS
def test_a_certificate_of_another_host_is_not_trusted(
    make_place: Callable[..., Place], loop_factory: LoopFactory
) -> None:
    place = make_place("elsewhere")
    with _runner(loop_factory) as runner:
        error = runner.run(_refusal(place.url, place.trusting()))
    assert "IP address mismatch" in (error.why or ""), error


@LOOPS
def test_a_server_that_asks_for_a_certificate(make_place: Callable[..., Place], loop_factory: LoopFactory) -> None:
    place = make_place(asks="yes")
    with _runner(loop_factory) as runner:
        assert runner.run(_whoami(place.url, place.trusting(client="client"))) == b"default"
        error = runner.run(_refusal(place.url, place.trusting()))
    # Its alert says so, where it comes before the end of the connection.
    assert "set DROPGATE_REDIS_TLS_CERT" in (error.remedy or ""), error


@LOOPS
def test_a_port_without_tls(make_place: Callable[..., Place], loop_factory: LoopFactory) -> None:
    place = make_place()
    with _runner(loop_factory) as runner:
        error = runner.run(_refusal(place.server.url.replace("redis://", "rediss://"), place.trusting()))
    assert error.why == "no connection within 2 s"
    assert "write redis in place of rediss if this port speaks no TLS" in (error.remedy or ""), error


@LOOPS
def test_a_port_with_tls_that_is_spoken_to_without(make_place: Callable[..., Place], loop_factory: LoopFactory) -> None:
    place = make_place()
    with _runner(loop_factory) as runner:
        error = runner.run(_refusal(place.url.replace("rediss://", "redis://"), place.trusting()))
    assert "write rediss in DROPGATE_REDIS_URL if this port speaks TLS" in (error.remedy or ""), error


@LOOPS
def test_sentinels_speak_tls_too(
    make_place: Callable[..., Place], make_sentinel: Callable[..., Sentinel], loop_factory: LoopFactory
) -> None:
    place, port = make_place(), free_ports()
    lines = [f"{name} {value}" for name, value in tls_settings(place.files, port, "server", asks="no").items()]
    sentinel = make_sentinel(place.port, *lines, "tls-replication yes")
    url = f"rediss+sentinel://127.0.0.1:{port}/{SERVICE}"
    with _runner(loop_factory) as runner:
        assert runner.run(_whoami(url, place.trusting())) == b"default"
        error = runner.run(_refusal(url, place.trusting("other")))
        assert f"127.0.0.1:{port}: its certificate is not trusted: " in (error.why or ""), error
        plain = runner.run(_refusal(f"rediss+sentinel://{sentinel.address}/{SERVICE}", place.trusting()))
        assert "write redis in place of rediss if this port speaks no TLS" in (plain.remedy or ""), plain
