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
    """Writes what it is called with, and removes the file in the end. Whoever sources it meets all of it or no file:
    half of it would mean the embedded parts. ServerFailed: another process keeps it."""
    path.parent.mkdir(exist_ok=True)
    lock, draft = path.with_name(f".{path.name}.lock"), path.with_name(f".{path.name}.draft")
    with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, MODE), "w") as file:
        _claim(file.fileno(), path)
        path.unlink(missing_ok=True)

        def write(text: str) -> None:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "w") as whole:
                whole.write(text)
            draft.replace(path)

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
