"""A group's consumption of one topic in this process: a child that lives, and what it holds, for one consumer or more.

    arrived    in line, not handed out: bound to no time
    handed out until its invisible time is over, or it is settled
    put off    a copy waits at the broker, and this one is done; where no broker takes it, it comes again from here

A child's message that is not done is one that its group has not consumed: it comes again when the child is gone.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.classic.bounds import ConsumerBounds
from service.adapters.rocketmq.classic.child import Child
from service.adapters.rocketmq.classic.frames import Begin, Message
from service.adapters.rocketmq.classic.group import Ear, Group
from service.adapters.rocketmq.classic.lines import AsItComes, Held, Lines, OneOfAQueue
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.domain.errors import BrokerUnavailable
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn

LISTED_EVERY_S = 0.05
"""Looks for a child that has just started: a broker lists it within milliseconds."""
AT_ONCE_S = 0.001
"""A delay of nothing: the shortest level there is."""


class Subscription:
    def __init__(
        self,
        settings: ClassicSettings,
        operator: Operator,
        bounds: ConsumerBounds,
        *,
        topic: str,
        group: str,
        fifo: bool,
    ) -> None:
        self.topic, self._group_name, self._fifo = topic, group, fifo
        self._settings, self._bounds = settings, bounds
        self.group = Group(operator, settings, bounds, topic=topic, group=group)
        self._folder = Path(tempfile.mkdtemp(prefix="dropgate-rocketmq4-"))
        self._arrived: set[asyncio.Event] = set()
        self._lines: Lines = OneOfAQueue(bounds.reorder_s, self.wake) if fifo else AsItComes()
        self._out: set[Held] = set()
        """Handed out and not settled."""
        self._child: Child | None = None
        self._attempts_max = 0
        self._alive_s = 0.0
        self._under_way: set[asyncio.Task[None]] = set()
        self.keeper: asyncio.Task[None] | None = None
        """Lives as long as the subscription. One that ends earlier is a fault."""

    # --- its life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """BrokerUnavailable or BrokerRefused: nothing is left of it."""
        try:
            self._child = await self._started()
        except BaseException:
            self._remove_folder()
            raise
        self.keeper = asyncio.create_task(self._keep(self._child), name=f"rocketmq4: consumer {self._group_name}")

    async def close(self) -> None:
        """What is held comes again after its invisible time, what was not handed out at once; and what is done stays
        done, though the package has not stored it yet."""
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        child, self._child = self._child, None
        self.wake()
        if child is not None:
            with suppress(TimeoutError, BrokerUnavailable):
                async with asyncio.timeout(self._settings.close_timeout_s):
                    await self._take_leave(child)
            await child.kill()
        self._drop_all()
        for task in tuple(self._under_way):
            task.cancel()
        self._remove_folder()

    @property
    def is_alive(self) -> bool:
        """A broker and the child heard each other lately."""
        return self._child is not None and self._now_s() - self._alive_s < self._bounds.deaf_after_s

    def require_alive(self) -> None:
        if not self.is_alive:
            silent_s = self._now_s() - self._alive_s
            raise BrokerUnavailable(self._group_name, f"its consumer had no sign of life for {silent_s:.0f} s")

    async def _take_leave(self, child: Child) -> None:
        if not self._fifo:  # a copy would come after those that follow it
            await asyncio.gather(*(self._leave_for_later(held) for held in tuple(self._out) if not held.settling))
        await child.caught_up()
        await self.group.store_offsets(child.client)

    async def _leave_for_later(self, held: Held) -> None:
        left_s = max(AT_ONCE_S, held.until_s - self._now_s())
        with suppress(BrokerUnavailable):
            await self.group.send_back(held.message, left_s)
            self._done(held)

    # --- handing out --------------------------------------------------------------------------------------------------

    def take(self, limit: int, invisible_s: float) -> Sequence[Held]:
        found = self._lines.take(limit) if self._child is not None else []
        for held in found:
            held.until_s = self._now_s() + invisible_s
            held.expiry = asyncio.get_running_loop().call_at(held.until_s, self._expired, held)
            self._out.add(held)
        return found

    async def wait(self, within_s: float) -> None:
        """Until something may have arrived, or the subscription is closed."""
        arrived = asyncio.Event()
        self._arrived.add(arrived)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await arrived.wait()
        finally:
            self._arrived.discard(arrived)

    def wake(self) -> None:
        for arrived in self._arrived:
            arrived.set()

    def _message_came(self, child: Child, message: Message) -> None:
        self._lines.add(Held(child=child, message=message))
        self.wake()

    # --- settling -----------------------------------------------------------------------------------------------------

    def done(self, held: Held) -> bool:
        """False: too late."""
        if held not in self._out or held.settling:
            return False
        self._done(held)
        return True

    async def put_off(self, held: Held, delay_s: float) -> bool:
        """False: too late. Of a FIFO topic it stays here, and holds up its queue: a copy would come after those that
        follow it."""
        if held not in self._out or held.settling:
            return False
        if self._fifo and held.attempt >= self._attempts_max:
            return await self.bury(held)
        if self._fifo:
            self._again(held, delay_s)
            return True
        await self._put_off(held, delay_s)
        return True

    async def bury(self, held: Held) -> bool:
        """False: too late. BrokerUnavailable: it is not buried, and comes again."""
        if held not in self._out or held.settling:
            return False
        held.settling = True
        try:
            await self.group.bury(held.message)
        except BaseException:
            self._again(held, AT_ONCE_S)
            raise
        self._done(held)
        return True

    async def _put_off(self, held: Held, delay_s: float) -> None:
        held.settling = True
        try:
            await self.group.send_back(held.message, delay_s)
        except BrokerUnavailable as error:
            warn(
                Action.LOOP_FAILED, loop=f"settle {self._group_name}", message_id=held.message.message_id, why=error.why
            )
            self._again(held, delay_s)
        except BaseException:
            self._again(held, delay_s)
            raise
        else:
            self._done(held)

    def _done(self, held: Held) -> None:
        """For the client, which may have lost its queue meanwhile: then it came again elsewhere."""
        self._forget(held)
        held.child.settle(held.message.number)
        self._lines.finished(held)
        self.wake()

    def _again(self, held: Held, delay_s: float) -> None:
        if held in self._out:
            self._forget(held)
            asyncio.get_running_loop().call_later(delay_s, self._comes_again, held)

    def _comes_again(self, held: Held) -> None:
        if held.child is self._child:
            held.repeats, held.settling = held.repeats + 1, False
            self._lines.add(held)
            self.wake()

    def _expired(self, held: Held) -> None:
        if not held.settling:
            self._run(self._put_off_expired(held))

    async def _put_off_expired(self, held: Held) -> None:
        with suppress(BrokerUnavailable):
            await self.put_off(held, AT_ONCE_S)

    def _forget(self, held: Held) -> None:
        self._out.discard(held)
        if held.expiry is not None:
            held.expiry.cancel()

    def _drop_all(self) -> None:
        for held in tuple(self._out):
            self._forget(held)
        self._lines.clear()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    # --- the child ----------------------------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> None:
        """Until cancelled: whatever becomes of a child, another takes its place."""
        failures = 0
        while True:
            began_s = self._now_s()
            why = await self._useless(child)
            warn(
                Action.LOOP_FAILED, loop=f"consumer {self._group_name}", pid=child.pid, why=f"{why}: another is started"
            )
            metrics.CONSUMERS_REPLACED.labels(self._group_name).inc()
            await child.kill()
            self._drop_all()
            failures = 0 if self._now_s() - began_s >= self._bounds.deaf_after_s else failures + 1
            self._child = child = await self._started_at_last(failures)
            log(Action.STARTED, loop=f"consumer {self._group_name}", pid=child.pid)

    async def _useless(self, child: Child) -> str:
        """Why it is of no use any more."""
        heard_s = self._now_s()
        while True:
            done, _ = await asyncio.wait({child.ended}, timeout=self._bounds.probe_every_s)
            if done:
                return child.ended.result()
            ears = await self.group.ears(child.client)
            if Ear.HEARS in ears:
                self._alive_s = self._now_s()
            if Ear.DEAF not in ears:
                heard_s = self._now_s()
            elif self._now_s() - heard_s >= self._bounds.deaf_after_s:
                return f"a broker has not heard of it for {self._now_s() - heard_s:.1f} s"

    async def _started_at_last(self, failures: int) -> Child:
        """However long that takes; each reason is said once."""
        said: str | None = None
        while True:
            pause_s = self._bounds.restart_pause_s * 2 ** min(failures, 10)
            await asyncio.sleep(min(self._bounds.restart_pause_max_s, pause_s))
            try:
                return await self._started()
            except BrokerUnavailable as error:
                if error.why != said:
                    warn(Action.LOOP_FAILED, loop=f"consumer {self._group_name}", why=error.why)
                said, failures = error.why, failures + 1

    async def _started(self) -> Child:
        """One that the brokers know."""
        prepared = await self.group.prepare()
        self._attempts_max = prepared.attempts_max
        within_s = self._settings.start_timeout_s
        child = await Child.start(self._begin(prepared.queues), self._bounds, self._message_came, within_s=within_s)
        try:
            await self._listed(child, within_s)
            await self.group.refuse_others()
        except BaseException:
            await child.kill()
            self._drop_all()
            raise
        return child

    async def _listed(self, child: Child, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while set(await self.group.ears(child.client)) != {Ear.HEARS}:
                    if child.ended.done():
                        raise BrokerUnavailable(self._group_name, child.ended.result())
                    await asyncio.sleep(LISTED_EVERY_S)
        except TimeoutError:
            raise BrokerUnavailable(self._group_name, f"no broker knew its consumer within {within_s:g} s") from None
        self._alive_s = self._now_s()

    def _begin(self, queues: int) -> Begin:
        bounds, settings = self._bounds, self._settings
        fifo_threads = queues * (bounds.fifo_cached_max + bounds.pull_max)
        return Begin(
            name_servers=settings.name_servers,
            topic=self.group.topic,
            group=self.group.name,
            instance=uuid.uuid4().hex[:12],
            threads=min(fifo_threads, bounds.fifo_threads_max) if self._fifo else bounds.threads,
            cached_max=bounds.fifo_cached_max if self._fifo else bounds.cached_max,
            silence_max_s=bounds.orphaned_after_s,
            access_key=settings.access_key,
            secret_key=settings.secret_key,
            log_folder=str(self._folder),
        )

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
