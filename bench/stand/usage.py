"""What processes use while something is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

from bench.figures import Usage

LOOK_S = 0.25
MB = 1024 * 1024


@dataclass(kw_only=True)
class _Watched:
    process: psutil.Process
    cpu_at_s: float
    resident: int = 0
    cpu_s: float = 0.0

    def look(self) -> None:
        with self.process.oneshot():
            times = self.process.cpu_times()
            self.cpu_s = times.user + times.system - self.cpu_at_s
            self.resident = max(self.resident, self.process.memory_info().rss)


@dataclass
class Watch:
    """By name. A process and its children are each counted by themselves."""

    watched: dict[str, _Watched] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    def usage(self) -> tuple[Usage, ...]:
        seconds = (self.ended_s or time.monotonic()) - self.began_s
        return tuple(
            Usage(process=name, cores=it.cpu_s / seconds, resident_mb=it.resident / MB)
            for name, it in self.watched.items()
        )


@asynccontextmanager
async def watching(processes: Mapping[str, int]) -> AsyncIterator[Watch]:
    """`processes`: names to ids. One that ends meanwhile keeps its last figures."""
    watch = Watch()
    for name, pid in processes.items():
        for label, process in _family(name, pid):
            times = process.cpu_times()
            watch.watched[label] = _Watched(process=process, cpu_at_s=times.user + times.system)
    looking = asyncio.create_task(_look(watch))
    try:
        yield watch
    finally:
        looking.cancel()
        _look_once(watch)
        watch.ended_s = time.monotonic()


def _family(name: str, pid: int) -> list[tuple[str, psutil.Process]]:
    parent = psutil.Process(pid)
    children = [(f"{name}: child {number}", it) for number, it in enumerate(parent.children(recursive=True), 1)]
    return [(name, parent), *children]


async def _look(watch: Watch) -> None:
    while True:
        _look_once(watch)
        await asyncio.sleep(LOOK_S)


def _look_once(watch: Watch) -> None:
    for it in watch.watched.values():
        try:
            it.look()
        except psutil.Error:
            continue
