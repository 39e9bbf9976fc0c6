"""Which processes the servers are, by where they listen; and what they use, beside what is measured on them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psutil
import pytest

from bench.stand import servers, usage
from bench.stand.servers import FORWARDERS, Place, Server, servers_of, watchable
from bench.stand.usage import watching
from service.settings import Settings
from tests.fixtures.stage_tools import until

NAMELESS = "a" * 64
"""No label of a name is so long: no resolver is asked."""
ELSEWHERE = "192.0.2.1"
BUSY = "while True: pass"
PATIENT_S = 10.0


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[int]:
    """This process itself, on a port."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        yield server.getsockname()[1]


def at(server: Server, port: int, host: str = "127.0.0.1") -> Place:
    return Place(server=server, host=host, port=port)


async def sentences(*places: Place) -> list[str]:
    found = await watchable(places)
    assert not found.processes
    return [str(it) for it in found.left_out]


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
async def test_a_server_is_the_process_that_listens_at_its_address(bound: str) -> None:
    with listening(bound) as port:
        found = await watchable([at(Server.REDIS, port)])
    assert {name: process.pid for name, process in found.processes.items()} == {"Redis": os.getpid()}
    assert not found.left_out


async def test_one_process_at_several_addresses_is_watched_once_by_all_of_its_names() -> None:
    with listening() as proxy, listening() as broker:
        found = await watchable([at(Server.PROXY, proxy), at(Server.BROKER, broker)])
    assert list(found.processes) == ["RocketMQ broker and proxy"]


async def test_a_second_server_of_a_kind_has_a_number() -> None:
    async with other_listening() as port:
        with listening() as own:
            found = await watchable([at(Server.BROKER, own), at(Server.BROKER, port)])
    assert list(found.processes) == ["RocketMQ broker", "RocketMQ broker 2"]


@asynccontextmanager
async def other_listening() -> AsyncIterator[int]:
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield int(await process.stdout.readline())
    process.stdin.write(b"\n")
    await process.communicate()


async def test_what_cannot_be_watched_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port:
        assert await sentences(at(Server.REDIS, port, ELSEWHERE)) == [
            f"Redis at 192.0.2.1:{port} is not watched: it is on another machine."
        ]
        (unnamed,) = await sentences(at(Server.DATABASE, port, NAMELESS))
        assert "its host cannot be resolved" in unnamed
        monkeypatch.setattr(servers, "FORWARDERS", FORWARDERS | {psutil.Process().name()})
        (forwarded,) = await sentences(at(Server.REDIS, port))
        assert forwarded.endswith(f"{psutil.Process().name()} listens there for it.")
    (unseen,) = await sentences(at(Server.REDIS, port))
    assert unseen.endswith("its process is in a container or another user's, and cannot be seen.")


async def test_a_user_who_may_not_look_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refused)
    with listening() as port:
        assert len(await sentences(at(Server.REDIS, port))) == 1


async def test_each_server_of_the_settings_that_is_not_there_is_said_once() -> None:
    settings = Settings(
        redis_url="unix:///run/redis.sock",
        database_url=f"mysql://anna:secret@{ELSEWHERE}/shop",
        broker_url="rocketmq5://192.0.2.2:8081;192.0.2.3:8081",
        rocketmq_nameserver="127.0.0.1:9; nowhere",
    )
    urls = [settings.broker_url, "rocketmq4://192.0.2.4:9876", settings.broker_url]
    found = await servers_of(settings, urls)
    assert [it.what for it in found.left_out] == [
        "Redis",
        "RocketMQ name server",
        "RocketMQ broker",
        "database at 192.0.2.1:3306",
        "RocketMQ name server at 127.0.0.1:9",
        "RocketMQ proxy at 192.0.2.2:8081",
        "RocketMQ proxy at 192.0.2.3:8081",
    ]
    assert "secret" not in " ".join(map(str, found.left_out))


async def test_what_a_server_uses_is_told_apart_from_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LOOK_S", 0.01)
    busy = await asyncio.create_subprocess_exec(sys.executable, "-c", BUSY)
    server, gone = psutil.Process(busy.pid), await _ended()
    try:
        async with watching({"api": os.getpid()}, {"Redis": server, "database": gone}) as watch:

            async def seen() -> bool:
                (redis,) = watch.servers()
                return redis.cores > 0.1

            await until(seen, "it is busy", PATIENT_S)
    finally:
        busy.kill()
        await busy.wait()
    assert next(it.process for it in watch.usage()) == "api"
    (redis,) = watch.servers()
    assert redis.process == "Redis"
    assert redis.resident_mb > 1


async def _ended() -> psutil.Process:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    known = psutil.Process(process.pid)
    await process.communicate(b"\n")
    return known
