"""Free loopback ports, outside the range from which the kernel takes those of outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

LOWEST, HIGHEST = 20_000, 32_000
TRIES = 200


def free_ports(offsets: Sequence[int] = (0,)) -> int:
    """A port that is free together with its neighbours: RocketMQ's broker also opens its port − 2 and + 1."""
    for _ in range(TRIES):
        port = random.randint(LOWEST, HIGHEST)
        if all(map(_is_free, (port + offset for offset in offsets))):
            return port
    raise OSError(f"no free ports between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
