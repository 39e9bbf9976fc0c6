"""A run in a folder: run.json for machines, table.txt and pictures/ for people."""

from __future__ import annotations

from pathlib import Path

from bench.report.pictures import NoPictures, pictures
from bench.report.run import Run, Unreadable, decode, encode
from bench.report.table import plain, tables

DOCUMENT, TABLE, PICTURES = "run.json", "table.txt", "pictures"


def write(run: Run, folder: Path) -> str | None:
    """Whatever run was in the folder before is replaced. None, or one sentence on why there are no pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DOCUMENT).write_bytes(encode(run))
    (folder / TABLE).write_text(plain(tables(run)), encoding="utf-8")
    return draw(run, folder)


def draw(run: Run, folder: Path) -> str | None:
    """As `write`. Older pictures go first: they would be taken for this run's."""
    into = folder / PICTURES
    for old in into.glob("*.svg"):
        old.unlink()
    try:
        drawn = pictures(run)
    except NoPictures as missing:
        return str(missing)
    into.mkdir(exist_ok=True)
    for name, svg in drawn.items():
        (into / name).write_bytes(svg)
    return None


def read(folder: Path) -> Run:
    """Raises Unreadable."""
    document = folder / DOCUMENT
    try:
        return decode(document.read_bytes())
    except OSError as error:
        raise Unreadable(f"{document} cannot be read: {error.strerror}. Name a folder that the bench wrote.") from None
    except Unreadable as error:
        raise Unreadable(f"{document}: {error}") from None
