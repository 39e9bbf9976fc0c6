"""The embedded server's life: started once a folder, shared, gone with its parent, started again after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from service.adapters.redis.client import RedisClient
from service.adapters.redis.server import SOCKET, EmbeddedRedis, url_of
from service.adapters.redis.stock import RedisStock
from service.adapters.system_clock import SystemClock
from service.domain.errors import CannotStart
from tests.fixtures.servers import wait_until

pytestmark = pytest.mark.server

STARTER = """
import asyncio, signal, sys
from pathlib import Path
from service.adapters.redis.server import EmbeddedRedis

async def main():
    server = await EmbeddedRedis.start(Path(sys.argv[1]))
    print(server.owned, server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for a unix socket, wherever the machine keeps temporary files."""
    with tempfile.TemporaryDirectory(prefix="dg-") as name:
        yield Path(name) / "with space"


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[EmbeddedRedis]:
    running = await EmbeddedRedis.start(folder)
    yield running
    await running.stop()


async def answers(url: str) -> bool:
    client = RedisClient(url)
    try:
        return await client.healthy()
    finally:
        await client.close()


async def test_it_answers_and_loses_no_stock_by_its_settings(server: EmbeddedRedis) -> None:
    client = RedisClient(server.url)
    assert await RedisStock(client, SystemClock()).problems() == []
    assert await client.execute("CONFIG GET", "port") == [b"port", b"0"]
    await client.close()


async def test_a_second_starter_shares_the_running_server(server: EmbeddedRedis, folder: Path) -> None:
    second = await EmbeddedRedis.start(folder)
    assert server.owned
    assert not second.owned
    assert second.url == server.url
    await second.stop()
    assert await answers(server.url)


async def test_starters_at_the_same_time_start_one_server(folder: Path) -> None:
    servers = await asyncio.gather(*(EmbeddedRedis.start(folder) for _ in range(4)))
    assert sum(server.owned for server in servers) == 1
    for server in servers:
        await server.stop()


async def test_stop_ends_it_and_a_start_after_it_works(folder: Path) -> None:
    first = await EmbeddedRedis.start(folder)
    client = RedisClient(first.url)
    await client.execute("SET", "kept", "yes")
    await client.close()
    pid = first.pid
    await first.stop()
    assert pid is not None
    assert not _alive(pid)
    second = await EmbeddedRedis.start(folder)
    client = RedisClient(second.url)
    assert await client.execute("GET", "kept") == b"yes"
    await client.close()
    await second.stop()
    await second.stop()


async def test_a_stale_socket_is_no_obstacle(folder: Path) -> None:
    folder.mkdir()  # noqa: ASYNC240
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / SOCKET))
    server = await EmbeddedRedis.start(folder)
    assert server.owned
    assert await answers(server.url)
    await server.stop()


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_it_dies_with_a_parent_that_is_killed(folder: Path) -> None:
    parent = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", STARTER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    owned, pid = parent.stdout.readline().split()
    assert owned == "True"
    assert await answers(url_of(folder))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not _alive(int(pid)), "the server is gone")
    server = await EmbeddedRedis.start(folder)
    assert server.owned
    await server.stop()


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_parent_that_died_first_is_noticed() -> None:
    wrapper = Path("service/die_with_parent.py").resolve()
    nobody = str(os.getpid() + 1)
    run = subprocess.run(
        [sys.executable, "-I", wrapper, nobody, "/bin/true"], check=False, capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (1, "the parent is gone\n")


async def test_a_cancelled_start_leaves_no_server_behind(folder: Path) -> None:
    starting = asyncio.create_task(EmbeddedRedis.start(folder))
    while not (folder / "redis.conf").exists():  # noqa: ASYNC110
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    server = await EmbeddedRedis.start(folder)
    assert server.owned
    await server.stop()


async def test_a_path_too_long_for_a_socket_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="shorter path, or set DROPGATE_REDIS_URL"):
        await EmbeddedRedis.start(tmp_path / ("x" * 120))


async def test_a_server_that_cannot_start_points_to_its_log(folder: Path) -> None:
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense")
    with pytest.raises(CannotStart, match=r"redis\.log"):
        await EmbeddedRedis.start(folder)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
