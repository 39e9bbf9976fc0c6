"""The Redis that the machine has, with the settings that Dropgate demands: persistence, and no eviction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from tests.servers.one_process import OneProcessServer


class Redis(OneProcessServer):
    name = "redis"
    executable = "redis-server"
    answer = "PING is answered"
    ready_within_s = 30.0

    @property
    def url(self) -> str:
        """As DROPGATE_REDIS_URL wants it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def call(self, *command: Any) -> Any:
        """One command on a connection of its own."""
        with redis.Redis(host="127.0.0.1", port=self.port, protocol=2, socket_timeout=5.0) as client:
            return client.execute_command(*command)

    def _command(self, settings: Sequence[str]) -> list[str]:
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        kept = ["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--save", ""]
        return [self._program, *fixed, *kept, *settings]

    def _answers(self) -> bool:
        try:
            return bool(self.call("PING"))
        except (redis.ConnectionError, redis.TimeoutError):  # also while it loads its file
            return False
