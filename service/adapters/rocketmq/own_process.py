"""Clients belong to the process that started them: threads and connections do not survive a fork (F49)."""

from __future__ import annotations

import os

from service.domain.errors import CannotStart


def require_process(transport: str, pid: int | None) -> None:
    """CannotStart: not the process in which it was started. Every call would wait for its deadline in vain."""
    if pid != os.getpid():
        raise CannotStart(
            transport, f"started in process {pid} and used in process {os.getpid()}: start it after the fork"
        )
