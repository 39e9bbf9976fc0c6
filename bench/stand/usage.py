"""What processes use while something is measured."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

from bench.figures import Usage

LOOK_S = 0.25
MB = 1024 * 1024


@dataclass(frozen=True)
class _Sample:
    at_s: float
    cpu_s: float
    resident: int


@dataclass(kw_only=True)
class _Watched:
    process: psutil.Process
    samples: list[_Sample] = field(default_factory=list)

    def look(self) -> None:
        with self.process.oneshot():
            times = self.process.cpu_times()
            resident = self.process.memory_info().rss
        self.samples.append(_Sample(time.monotonic(), times.user + times.system, resident))

    def usage(self, name: str, began_s: float, ended_s: float) -> Usage:
        first = max([it for it in self.samples if it.at_s <= began_s] or self.samples[:1], key=lambda it: it.at_s)
        last = min([it for it in self.samples if it.at_s >= ended_s] or self.samples[-1:], key=lambda it: it.at_s)
        cores = (last.cpu_s - first.cpu_s) / max(last.at_s - first.at_s, LOOK_S)
        return Usage(process=name, cores=cores, resident_mb=max(it.resident for it in self.samples) / MB)


@dataclass
class Watch:
    """By name. A process and its children are each counted by themselves; a server's children, which save or come and
    go, are not."""

    watched: dict[str, _Watched] = field(default_factory=dict)
    watched_servers: dict[str, _Watched] = field(default_factory=dict)

    def usage(self, began_s: float = 0.0, ended_s: float = math.inf) -> tuple[Usage, ...]:
        """Between two times of the monotonic clock: a crowd comes and goes slower than it asks."""
        return _usage(self.watched, began_s, ended_s)

    def servers(self, began_s: float = 0.0, ended_s: float = math.inf) -> tuple[Usage, ...]:
        """As `usage`."""
        return _usage(self.watched_servers, began_s, ended_s)

    def look(self) -> None:
        for it in (*self.watched.values(), *self.watched_servers.values()):
            try:
                it.look()
            except psutil.Error:
                continue


def _usage(watched: Mapping[str, _Watched], began_s: float, ended_s: float) -> tuple[Usage, ...]:
    return tuple(it.usage(name, began_s, ended_s) for name, it in watched.items() if it.samples)


@asynccontextmanager
async def watching(processes: Mapping[str, int], servers: Mapping[str, psutil.Process]) -> AsyncIterator[Watch]:
    """`processes`: names to ids. One that ends meanwhile keeps its last figures; a server that had ended before has
    none."""
    watch = Watch(watched_servers={name: _Watched(process=process) for name, process in servers.items()})
    for name, pid in processes.items():
        for label, process in _family(name, pid):
            watch.watched[label] = _Watched(process=process)
    watch.look()
    looking = asyncio.create_task(_look(watch))
    try:
        yield watch
    finally:
        looking.cancel()
        watch.look()


def _family(name: str, pid: int) -> list[tuple[str, psutil.Process]]:
    parent = psutil.Process(pid)
    children = [(f"{name}: child {number}", it) for number, it in enumerate(parent.children(recursive=True), 1)]
    return [(name, parent), *children]


async def _look(watch: Watch) -> None:
    while True:
        watch.look()
        await asyncio.sleep(LOOK_S)
