"""Keeps one client alive: opened by a deadline, asked for a sign of life, replaced when it has gone deaf.

The package writes its settings every 300 s and repairs its stream only then: after a restart of the proxy it would hear
of no check-back, and receive nothing, for up to five minutes (F07). A connection that is black-holed it never gives up
(F47). Here both end within `deaf_after_s`, a probe and a connect.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

from service.adapters.rocketmq.grpc.link import Link
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.own_process import require_process
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import log, warn


class Session:
    """`link` may be another one at every use: ask for it each time."""

    def __init__(self, name: str, make: Callable[[Iterable[str]], Link], settings: GrpcSettings) -> None:
        """`make` is told of topics that were learned on the way."""
        self.name = name
        self._make = make
        self._settings = settings
        self._link: Link | None = None
        self._pid = os.getpid()
        self._heard_s = self._alive_s = 0.0
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def link(self) -> Link:
        require_process("rocketmq5", self._pid)
        if self._link is None:
            raise BrokerUnavailable(self._settings.proxy, "not connected")
        return self._link

    @property
    def is_alive(self) -> bool:
        """One proxy at least gave a sign of life lately."""
        return self._link is not None and self._now_s() - self._alive_s < self._settings.deaf_after_s

    def require_alive(self) -> None:
        """BrokerUnavailable: there was no sign of life lately."""
        if not self.is_alive:
            raise BrokerUnavailable(self._settings.proxy, f"no sign of life for {self._now_s() - self._alive_s:.0f} s")

    async def open(self) -> None:
        """BrokerUnavailable or BrokerRefused: it is not open, and has to be opened again."""
        self._link = await self._opened(())
        self._heard()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._settings.probe_every_s)
            alive, known = await self.link.probe(), len(self.link.endpoints())
            self._alive_s = self._now_s() if alive or not known else self._alive_s
            if alive == known:
                self._heard()
            elif self._silent_s() >= self._settings.deaf_after_s:
                await self._replace(alive)

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._leave(link)
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _opened(self, learned: Iterable[str]) -> Link:
        link = self._make(learned)
        await link.open()
        return link

    async def _replace(self, alive: int) -> None:
        """The old one stays in use until there is one that hears more: of several proxies one may be away for good."""
        silent = f"no sign of life for {self._silent_s():.1f} s, so another client: {self.link.why_silent}"
        warn(Action.LOOP_FAILED, loop=self.name, why=silent)
        fresh = await self._opened_at_last()
        if await fresh.probe() > alive:
            old, self._link = self.link, fresh
            self._alive_s = self._now_s()
            log(Action.STARTED, loop=self.name, silent_s=round(self._silent_s(), 1))
        else:
            old = fresh
        self._leave(old)
        self._heard_s = self._now_s()

    async def _opened_at_last(self) -> Link:
        """However long that takes; each reason is said once. BrokerRefused is none to give up: a broker that comes back
        may not know its topics at once."""
        said: str | None = None
        while True:
            try:
                return await self._opened(self.link.routes)
            except BrokerUnavailable as error:
                if error.why != said:
                    warn(Action.LOOP_FAILED, loop=self.name, why=error.why)
                said = error.why
            await asyncio.sleep(self._settings.reconnect_every_s)

    def _leave(self, old: Link) -> None:
        """Its calls in flight end with it, so that nobody waits on a dead connection."""
        task = asyncio.create_task(old.close(), name=f"{self.name}: leave")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _heard(self) -> None:
        self._heard_s = self._alive_s = self._now_s()

    def _silent_s(self) -> float:
        return self._now_s() - self._heard_s

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
