"""Keeps one client alive: opened by a deadline, asked for a sign of life, replaced when it has gone deaf.

The package writes its settings every 300 s and repairs its stream only then: after a restart of the proxy it would hear
of no check-back, and receive nothing, for up to five minutes (F07). A connection that is black-holed it never gives up
(F47). Here both end within `deaf_after_s`, a probe and a connect.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable

from service.adapters.rocketmq.grpc.link import Link
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.own_process import require_process
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import log, warn


class Session:
    """`link` may be another one at every use: ask for it each time."""

    def __init__(
        self,
        name: str,
        make: Callable[[Iterable[str]], Link],
        settings: GrpcSettings,
        require_broker: Callable[[], Awaitable[None]],
    ) -> None:
        """`make` is told of topics that were learned on the way. `require_broker` raises BrokerUnavailable as long as
        no broker is registered."""
        self.name = name
        self._make = make
        self._require_broker = require_broker
        self._settings = settings
        self._link: Link | None = None
        self._fresh: Link | None = None
        """The next one, until it is chosen or left."""
        self._pid = os.getpid()
        self._heard_s = self._alive_s = 0.0
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def link(self) -> Link:
        """BrokerUnavailable: there was no sign of life lately. A proxy that comes back must not be asked by such a
        link: it keeps for 20 s that a topic has no route (`require_broker`)."""
        require_process("rocketmq5", self._pid)
        if self._link is None:
            raise BrokerUnavailable(self._settings.proxy, "not connected")
        self.require_alive()
        return self._link

    @property
    def is_alive(self) -> bool:
        """One proxy at least gave a sign of life lately. A look ends with its slowest proxy: one that is silent must
        not make those beside it look dead."""
        lately_s = self._settings.deaf_after_s + self._settings.probe_timeout_s
        return self._link is not None and self._now_s() - self._alive_s < lately_s

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
        while (link := self._link) is not None:
            await asyncio.sleep(self._settings.probe_every_s)
            await self._look(link)
            if self._silent_s() >= self._settings.deaf_after_s:
                await self._replace(link)

    async def close(self) -> None:
        for link in (self._link, self._fresh):
            if link is not None:
                self._leave(link)
        self._link = self._fresh = None
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _opened(self, learned: Iterable[str]) -> Link:
        await self._require_broker()
        link = self._make(learned)
        await link.open()
        return link

    async def _look(self, link: Link) -> int:
        """How many proxies it hears; where that is all of them, nothing is silent. One that answers again counts once
        there is a broker behind it."""
        alive, known = await link.probe(), len(link.endpoints())
        if alive and not link.may_ask and not await self._has_broker():
            alive = 0
        link.may_ask = alive > 0 or not known
        if link.may_ask:
            self._alive_s = self._now_s()
        if alive == known:
            self._heard()
        return alive

    async def _replace(self, old: Link) -> None:
        """The old one stays in use until there is one that hears more: of several proxies one may be away for good, and
        what the others hear counts meanwhile."""
        silent = f"no sign of life for {self._silent_s():.1f} s, so another client: {old.why_silent}"
        warn(Action.LOOP_FAILED, loop=self.name, why=silent)
        opening = asyncio.create_task(self._open_another(old), name=f"{self.name}: open another")
        try:
            await self._look_until(opening, old)
        finally:
            opening.cancel()
        if self._fresh is not None:
            await self._choose(old, self._fresh)

    async def _has_broker(self) -> bool:
        try:
            await self._require_broker()
        except BrokerUnavailable:
            return False
        return True

    async def _look_until(self, opening: asyncio.Task[None], old: Link) -> None:
        """Until there is another, or the old one hears all again by itself."""
        while not opening.done() and self._silent_s() >= self._settings.deaf_after_s:
            await asyncio.wait([opening], timeout=self._settings.probe_every_s)
            if not opening.done():
                await self._look(old)
        if opening.done():
            opening.result()

    async def _choose(self, old: Link, fresh: Link) -> None:
        heard, heard_by_old = await asyncio.gather(fresh.probe(), self._look(old))
        better = heard > heard_by_old
        self._fresh = None
        if better:
            self._link, self._alive_s = fresh, self._now_s()
            log(Action.STARTED, loop=self.name, silent_s=round(self._silent_s(), 1))
        self._leave(old if better else fresh)
        self._heard_s = self._now_s()

    async def _open_another(self, old: Link) -> None:
        """However long that takes; each reason is said once. BrokerRefused is none to give up: a broker that comes back
        may not know its topics at once."""
        said: str | None = None
        while True:
            try:
                self._fresh = await self._opened(old.routes)
            except BrokerUnavailable as error:
                if error.why != said:
                    warn(Action.LOOP_FAILED, loop=self.name, why=error.why)
                said = error.why
            else:
                return
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
