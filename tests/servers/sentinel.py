"""Redis Sentinels, and what they watch: a master with one replica. A failover takes them about a second."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from tests.servers.one_process import OneProcessServer
from tests.servers.redis7 import Redis

SERVICE = "shoes"
CONFIG = """\
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {service} 127.0.0.1 {watched} {quorum}
sentinel down-after-milliseconds {service} 500
sentinel failover-timeout {service} 3000
"""


class Sentinel(OneProcessServer):
    """`lines` are added to its configuration, which it goes on writing itself."""

    name = "sentinel"
    executable = "redis-server"
    answer = "PING is answered"
    ready_within_s = 30.0

    def __init__(self, watched: int, *lines: str, quorum: int = 1) -> None:
        super().__init__()
        self._config = CONFIG.format(
            port=self.port, folder=self.folder, service=SERVICE, watched=watched, quorum=quorum
        ) + "\n".join(lines)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.address}/{SERVICE}/0"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def call(self, *command: Any) -> Any:
        with redis.Redis(host="127.0.0.1", port=self.port, protocol=2, socket_timeout=5.0) as client:
            return client.execute_command(*command)

    def master_port(self) -> int:
        return int(self.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def _prepare(self) -> None:
        path = self.folder / "sentinel.conf"
        if not path.exists():
            path.write_text(self._config)

    def _command(self, settings: Sequence[str]) -> list[str]:
        return [self._program, str(self.folder / "sentinel.conf"), "--sentinel"]

    def _answers(self) -> bool:
        """Whatever it says: it may want a password."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
                connection.sendall(b"PING\r\n")
                return bool(connection.recv(64))
        except OSError:
            return False


class WatchedRedis:
    """A master and its replica, as Sentinels see them; which is which changes."""

    def __init__(self, sentinels: int = 3) -> None:
        fast = ("--repl-diskless-sync-delay", "0")
        self._stack = ExitStack()
        self.first = Redis(*fast)
        self.second = Redis(*fast, "--replicaof", "127.0.0.1", str(self.first.port))
        quorum = sentinels // 2 + 1
        self.sentinels = [Sentinel(self.first.port, quorum=quorum) for _ in range(sentinels)]

    @property
    def url(self) -> str:
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def start(self) -> None:
        for server in (self.first, self.second, *self.sentinels):
            self._stack.callback(server.stop)
            server.start()
        self._wait("the Sentinels know each other and the replica", self._is_whole)

    def stop(self) -> None:
        self._stack.close()

    # --- as one server, whichever the master is -----------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        return self.master().folder

    def call(self, *command: Any) -> Any:
        return self.master().call(*command)

    def kill(self) -> None:
        self.master().kill()

    def restart(self) -> None:
        self.master().restart()

    # --- which is which -----------------------------------------------------------------------------------------------

    def master(self) -> Redis:
        return self._by_port(self.sentinels[0].master_port())

    def replica(self) -> Redis:
        return self.second if self.master() is self.first else self.first

    def fail_over(self) -> None:
        """As an operator asks for it. Returns when all Sentinels name the new master."""
        wanted = self.replica().port
        self.sentinels[0].call("SENTINEL", "FAILOVER", SERVICE)
        self.wait_for_master(wanted)

    def wait_for_master(self, port: int) -> None:
        """Named by all Sentinels, and it is one."""
        self._wait(f"{port} is the master", lambda: self._is_master(port))

    def _is_master(self, port: int) -> bool:
        named = {sentinel.master_port() for sentinel in self.sentinels}
        return named == {port} and bool(self._by_port(port).call("ROLE")[0] == b"master")

    def _is_whole(self) -> bool:
        states = [sentinel.call("SENTINEL", "MASTER", SERVICE) for sentinel in self.sentinels]
        numbers = [dict(zip(state[::2], state[1::2], strict=True)) for state in states]
        others = str(len(self.sentinels) - 1).encode()
        synced = self.second.call("INFO", "replication")["master_link_status"] == "up"
        return synced and all(it[b"num-other-sentinels"] == others and it[b"num-slaves"] == b"1" for it in numbers)

    def _by_port(self, port: int) -> Redis:
        return self.first if self.first.port == port else self.second

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        self.sentinels[0].process.wait_until(ready, what, 30.0)
