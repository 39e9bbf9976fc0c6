"""What the embedded stack stores holds buyers' data: its folder and its files are their owner's alone, whoever makes
them first, and whatever umask the process has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FOLDER, FILE = 0o700, 0o600
OTHERS = 0o077


def private_folder(folder: Path) -> Path:
    """Made for its owner, if it has to be made. One that is there may be shared on purpose: its files are not."""
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    return folder


def private_file(path: Path) -> Path:
    """There, and its owner's: SQLite gives its journals the mode of the file they belong to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, FILE)
    try:
        if os.fstat(descriptor).st_mode & OTHERS:
            with suppress(PermissionError):  # another user's: theirs to share
                os.fchmod(descriptor, FILE)
    finally:
        os.close(descriptor)
    return path
