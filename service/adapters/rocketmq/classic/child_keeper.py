"""Keeps a child with the package's consumer alive: started, known to the brokers, replaced when it is of no use."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence

from service.adapters.rocketmq.classic.bounds import ConsumerBounds
from service.adapters.rocketmq.classic.child import Child
from service.adapters.rocketmq.classic.frames import Begin, Message
from service.adapters.rocketmq.classic.group import Ear, Group, Look, Prepared
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.standstill import Queue, Standstill
from service.domain.errors import BrokerUnavailable
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn

LISTED_EVERY_S = 0.05
"""Looks for a child that has just started: a broker lists it within milliseconds."""


class ChildKeeper:
    """`child` may be another one at every use, or None for a while."""

    def __init__(
        self,
        group: Group,
        settings: ClassicSettings,
        bounds: ConsumerBounds,
        *,
        fifo: bool,
        on_message: Callable[[Child, Message], None],
        on_lost: Callable[[], None],
        has_room: Callable[[int], bool],
    ) -> None:
        """`on_lost`: the child is gone, and all that it held comes again. `has_room`: nothing of the queue of this
        number is with us, and more of it could be."""
        self._group, self._settings, self._bounds, self._fifo = group, settings, bounds, fifo
        self._name = f"consumer {group.name}"
        self._on_message, self._on_lost, self._has_room = on_message, on_lost, has_room
        self._alive_s = 0.0
        self._running: asyncio.Task[None] | None = None
        self.child: Child | None = None
        self.prepared = Prepared(queues=0, attempts_max=0)

    async def open(self) -> asyncio.Task[None]:
        """The task lives until `close`; one that ends earlier is a fault. BrokerUnavailable or BrokerRefused: no child
        is left."""
        self.child = await self._started()
        self._running = asyncio.create_task(self._keep(self.child), name=f"rocketmq4: {self._name}")
        return self._running

    async def close(self) -> Child | None:
        """Replaced no more; the child is the caller's to end."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        child, self.child = self.child, None
        return child

    def require_alive(self) -> None:
        """BrokerUnavailable: no broker and child heard each other lately."""
        silent_s = self._now_s() - self._alive_s
        if self.child is None or silent_s >= self._bounds.deaf_after_s:
            raise BrokerUnavailable(self._group.name, f"its consumer had no sign of life for {silent_s:.0f} s")

    async def _keep(self, child: Child) -> None:
        """Until cancelled: whatever becomes of a child, another takes its place."""
        failures = 0
        while True:
            began_s = self._now_s()
            why = await self._useless(child)
            warn(Action.LOOP_FAILED, loop=self._name, pid=child.pid, why=f"{why}: another is started")
            metrics.CONSUMERS_REPLACED.labels(self._group.name).inc()
            self.child = None
            await child.kill()
            self._on_lost()
            failures = 0 if self._now_s() - began_s >= self._bounds.deaf_after_s else failures + 1
            self.child = child = await self._started_at_last(failures)
            log(Action.STARTED, loop=self._name, pid=child.pid)

    async def _useless(self, child: Child) -> str:
        """Why it is of no use any more."""
        known_s = heard_s = self._now_s()
        standstill = Standstill()
        while True:
            done, _ = await asyncio.wait({child.ended}, timeout=self._bounds.probe_every_s)
            if done:
                return child.ended.result()
            looks, now_s = await self._group.look(child.client), self._now_s()
            ears = {look.ear for look in looks}
            self._alive_s = now_s if Ear.HEARS in ears else self._alive_s
            known_s = now_s if Ear.UNKNOWN not in ears else known_s
            heard_s = now_s if Ear.MUTE not in ears else heard_s
            if now_s - known_s >= self._bounds.deaf_after_s:
                return f"a broker has not known it for {now_s - known_s:.1f} s"
            if now_s - heard_s >= self._bounds.mute_after_s:
                return f"it has not answered a broker for {now_s - heard_s:.1f} s"
            if stuck := await self._stuck(looks, standstill):
                return f"it reads no more of {', '.join(f'{topic} {number}' for _, topic, number in stuck)}"

    async def _stuck(self, looks: Sequence[Look], standstill: Standstill) -> Sequence[Queue]:
        if any(look.ear in {Ear.AWAY, Ear.MUTE} for look in looks):
            return ()
        states = [state for look in looks for state in look.queues if self._has_room(state.queue)]
        try:
            read_to = await asyncio.gather(*map(self._group.read_to, states))
        except BrokerUnavailable:
            return ()
        queues = [(state.broker, state.topic, state.queue) for state in states]
        # What came meanwhile is on its way.
        unread = {queue: at for queue, at in zip(queues, read_to, strict=True) if at is not None}
        return standstill.found({queue: at for queue, at in unread.items() if self._has_room(queue[2])})

    async def _started_at_last(self, failures: int) -> Child:
        """However long that takes; each reason is said once. BrokerRefused is none to give up: a broker that comes back
        may not know its topics at once."""
        said: str | None = None
        while True:
            pause_s = self._bounds.restart_pause_s * 2 ** min(failures, 10)
            await asyncio.sleep(min(self._bounds.restart_pause_max_s, pause_s))
            try:
                return await self._started()
            except BrokerUnavailable as error:
                if error.why != said:
                    warn(Action.LOOP_FAILED, loop=self._name, why=error.why)
                said, failures = error.why, failures + 1

    async def _started(self) -> Child:
        """One that the brokers know."""
        self.prepared = await self._group.prepare()
        within_s = self._settings.start_timeout_s
        child = await Child.start(self._begin(), self._bounds, self._on_message, within_s=within_s)
        try:
            await self._listed(child, within_s)
            await self._group.refuse_others()
        except BaseException:
            await child.kill()
            self._on_lost()
            raise
        return child

    async def _listed(self, child: Child, within_s: float) -> None:
        """By one broker at least: another may be away for good."""
        try:
            async with asyncio.timeout(within_s):
                while not _is_listed(await self._group.look(child.client)):
                    if child.ended.done():
                        raise BrokerUnavailable(self._group.name, child.ended.result())
                    await asyncio.sleep(LISTED_EVERY_S)
        except TimeoutError:
            raise BrokerUnavailable(self._group.name, f"no broker knew its consumer within {within_s:g} s") from None
        self._alive_s = self._now_s()

    def _begin(self) -> Begin:
        return Begin(
            name_servers=self._settings.name_servers,
            topic=self._group.topic,
            group=self._group.name,
            instance=uuid.uuid4().hex[:12],
            threads=self._bounds.fifo_threads(self.prepared.queues) if self._fifo else self._bounds.threads,
            cached_max=self._bounds.fifo_cached(self.prepared.queues) if self._fifo else self._bounds.cached_max,
            silence_max_s=self._bounds.orphaned_after_s,
            access_key=self._settings.access_key,
            secret_key=self._settings.secret_key,
        )

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _is_listed(looks: Sequence[Look]) -> bool:
    ears = {look.ear for look in looks}
    return Ear.HEARS in ears and Ear.UNKNOWN not in ears
