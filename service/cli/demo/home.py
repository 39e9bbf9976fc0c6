"""The demo's folder: clean at each start, and never somebody else's."""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.cli.dev import LOCK
from service.cli.output import Failure

MARKER = ".dropgate-demo"
MARKER_TEXT = "Made by `dropgate demo`, which empties this folder when it starts again.\n"
OLD_SERVER_GRACE_S = 20.0
"""How long the server of a demo that was killed may take to end."""


@contextmanager
def demo_home(wanted: Path | None, *, keep: bool) -> Iterator[Path]:
    """An empty folder, held while the demo runs. `keep`: what an earlier demo left is not touched."""
    home = _fresh(wanted, keep=keep)
    with (home / MARKER).open("r+") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"Another demo runs in {home}: choose another folder by --home.") from None
        _wait_for_old_server(home)
        empty(home)
        yield home


def _fresh(wanted: Path | None, *, keep: bool) -> Path:
    if wanted is not None:
        return claim(wanted.absolute(), keep=keep)
    usual = Path(tempfile.gettempdir()) / f"dropgate-demo-{_user()}"
    if keep or not _free_for_us(usual):
        return claim(Path(tempfile.mkdtemp(prefix="dropgate-demo-")), keep=False)
    return claim(usual, keep=False)


def claim(home: Path, *, keep: bool) -> Path:
    """Make the folder ours by its marker file; refuse one that holds anything and has none."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker = home / MARKER
    if not marker.exists():
        if any(home.iterdir()):
            raise Failure(f"{home} is not empty and no demo made it: name another folder by --home.")
        marker.write_text(MARKER_TEXT)
    elif keep and any(path != marker for path in home.iterdir()):
        raise Failure(
            f"{home} holds an earlier demo: without --keep it would be emptied. Name another folder by --home."
        )
    return home


def empty(home: Path) -> None:
    """Remove what an earlier demo left; the marker stays. Links are removed, never followed."""
    if not (home / MARKER).is_file():
        raise Failure(f"{home} has no {MARKER}: it is not a demo's folder, nothing was removed.")
    for path in home.iterdir():
        if path.name == MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _free_for_us(home: Path) -> bool:
    """Whether it is absent, or ours alone and not in use. Others may write to the folder that it is in."""
    try:
        found = home.lstat()
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        return False
    return not _is_locked(home / MARKER)


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _wait_for_old_server(home: Path) -> None:
    deadline = time.monotonic() + OLD_SERVER_GRACE_S
    while _is_locked(home / LOCK):
        if time.monotonic() > deadline:
            raise Failure(f"A `dropgate dev` still runs in {home}: stop it, or choose another folder by --home.")
        time.sleep(0.1)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
