"""A group's consumption of one topic in this process: a child that lives, and what it holds, for one consumer or more.

    arrived    in line, not handed out: bound to no time
    handed out until its invisible time is over, or it is settled
    put off    a copy waits at the broker, and this one is done; where no broker takes it, it comes again from here

A child's message that is not done is one that its group has not consumed: it comes again when the child is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.classic.bounds import ConsumerBounds
from service.adapters.rocketmq.classic.child import Child
from service.adapters.rocketmq.classic.child_keeper import ChildKeeper
from service.adapters.rocketmq.classic.frames import Message
from service.adapters.rocketmq.classic.group import Group
from service.adapters.rocketmq.classic.level_desk import LevelDesk
from service.adapters.rocketmq.classic.lines import AsItComes, Held, Lines, OneOfAQueue
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.domain.errors import BrokerUnavailable
from service.observability.actions import Action
from service.observability.log import warn

AT_ONCE_S = 0.001
"""A delay of nothing: the shortest level there is."""


class Subscription:
    def __init__(
        self,
        settings: ClassicSettings,
        operator: Operator,
        levels: LevelDesk,
        bounds: ConsumerBounds,
        *,
        topic: str,
        group: str,
        fifo: bool,
    ) -> None:
        self.topic, self._group_name, self._fifo = topic, group, fifo
        self._settings, self._bounds = settings, bounds
        self.group = Group(operator, levels, settings, topic=topic, group=group)
        self._arrived: set[asyncio.Event] = set()
        self._lines: Lines = OneOfAQueue(bounds.reorder_s, self.wake) if fifo else AsItComes()
        self._out: set[Held] = set()
        """Handed out and not settled."""
        self._with_us: dict[int, Message] = {}
        """What has come and is not settled, by the child's numbers: at most as many as its client has threads."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._keeper = ChildKeeper(
            self.group,
            settings,
            bounds,
            fifo=fifo,
            on_message=self._message_came,
            on_lost=self._drop_all,
            has_room=self._has_room,
        )

    # --- its life -----------------------------------------------------------------------------------------------------

    async def open(self) -> asyncio.Task[None]:
        """The task that keeps it alive. BrokerUnavailable or BrokerRefused: nothing is left of it."""
        return await self._keeper.open()

    async def close(self) -> None:
        """What is held comes again after its invisible time, what was not handed out at once; and what is done stays
        done, though the package has not stored it yet."""
        child = await self._keeper.close()
        self.wake()
        if child is not None:
            with suppress(TimeoutError, BrokerUnavailable):
                async with asyncio.timeout(self._settings.close_timeout_s):
                    await self._take_leave(child)
            await child.kill()
        self._drop_all()
        for task in tuple(self._under_way):
            task.cancel()

    def require_alive(self) -> None:
        self._keeper.require_alive()

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
        found = self._lines.take(limit) if self._keeper.child is not None else []
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
        self._with_us[message.number] = message
        self._lines.add(Held(child=child, message=message))
        self.wake()

    def _has_room(self, queue_id: int) -> bool:
        of_it = any(message.queue_id == queue_id for message in self._with_us.values())
        return not of_it and len(self._with_us) < self._bounds.threads

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
        if self._fifo and held.attempt >= self._keeper.prepared.attempts_max:
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
        self._with_us.pop(held.message.number, None)
        held.child.settle(held.message.number)
        self._lines.finished(held)
        self.wake()

    def _again(self, held: Held, delay_s: float) -> None:
        if held in self._out:
            self._forget(held)
            asyncio.get_running_loop().call_later(delay_s, self._comes_again, held)

    def _comes_again(self, held: Held) -> None:
        if held.child is self._keeper.child:
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
        self._with_us.clear()
        self._lines.clear()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
