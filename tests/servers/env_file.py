"""The settings in a file to `source`, for its owner alone, as long as the servers run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerFailed

MODE = 0o600


@contextmanager
def env_file(path: Path) -> Iterator[Callable[[str], None]]:
    """Writes what it is called with, and removes the file in the end. ServerFailed: another process keeps it."""
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, MODE), "w") as file:
        _claim(file.fileno(), path)
        file.truncate()

        def write(text: str) -> None:
            file.write(text)
            file.flush()

        try:
            yield write
        finally:
            path.unlink(missing_ok=True)


def _claim(descriptor: int, path: Path) -> None:
    """The kernel gives the lock back with the process, however that ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ServerFailed(
            f"servers run already, their settings are in {path}: use them (`. {path}`), stop them, "
            "or have a second set by `--env ANOTHER_FILE`"
        ) from None
    os.fchmod(descriptor, MODE)
