"""The Redis that the machine has, with the settings that Dropgate demands: persistence, and no eviction."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from tests.servers.install import program
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess

READY_WITHIN_S = 30.0


class Redis:
    """`start` returns when it answers PING. Address and data stay over restarts; later settings win."""

    def __init__(self, *settings: str) -> None:
        self._program = program("redis-server")
        self.folder = Path(tempfile.mkdtemp(prefix="dropgate-redis-"))
        self.port = free_ports()
        self.ready_s = 0.0
        self.process = ServerProcess("redis", self._command(settings), self.folder)

    @property
    def url(self) -> str:
        """As DROPGATE_REDIS_URL wants it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def call(self, *command: Any) -> Any:
        """One command on a connection of its own."""
        with redis.Redis(host="127.0.0.1", port=self.port, protocol=2, socket_timeout=5.0) as client:
            return client.execute_command(*command)

    def start(self) -> None:
        began = time.monotonic()
        try:
            self.process.launch()
            self.process.wait_until(self._answers, "PING is answered", READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.monotonic() - began

    def restart(self) -> None:
        self.process.stop()
        self.start()

    def stop(self) -> None:
        """For good: the folder goes too."""
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        self.process.kill()

    def _command(self, settings: Sequence[str]) -> list[str]:
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        kept = ["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--save", ""]
        return [self._program, *fixed, *kept, *settings]

    def _answers(self) -> bool:
        try:
            return bool(self.call("PING"))
        except (redis.ConnectionError, redis.TimeoutError):  # also while it loads its file
            return False
