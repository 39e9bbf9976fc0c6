"""The parts of a process: started together, watched, and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum

from consumers import events, keeper, order, payment_timeout
from consumers.loop import Turn, take_turns
from service.api.app import create_app, create_ops_app
from service.api.server import HttpServer
from service.bootstrap.adapters import open_adapters
from service.bootstrap.use_cases import UseCases
from service.core.directory import REFRESH_S
from service.core.expiry import PaymentExpiry
from service.core.outbox import OutboxRelay
from service.core.readiness import LOOK_S
from service.observability.actions import Action
from service.observability.log import log, warn
from service.settings import Settings

REGISTER_S = 1.0
"""Between two tries to register for check-backs."""

DRAIN_SHARE = 0.8
"""Of the stop time-out: the rest is for the answers and the loops."""


class Part(StrEnum):
    """What a process may run. `dropgate dev` runs them all."""

    API = "api"
    ORDER = "order"
    TIMEOUT = "timeout"
    EVENTS = "events"
    KEEPER = "keeper"


CONSUMERS = frozenset({Part.ORDER, Part.TIMEOUT})


@dataclass(frozen=True, kw_only=True)
class Running:
    url: str | None
    parts: frozenset[Part]


async def run(
    settings: Settings,
    parts: frozenset[Part],
    *,
    stop: asyncio.Event,
    on_ready: Callable[[Running], None] | None = None,
) -> int:
    """Run these parts in this process until `stop` is set or one of them dies; the exit code.

    `on_ready` hears of it once a consumer has its broker; an API says in /readyz what is missing."""
    async with open_adapters(settings, start_redis=True) as adapters:
        process = _Process(settings, UseCases(settings, adapters), parts)
        running = await process.start()
        if await process.works(stop) and on_ready is not None:
            on_ready(running)
        return await process.run_until(stop)


class _Process:
    """The parts as tasks: one that ends before it was asked to is a fault, and stops them all."""

    def __init__(self, settings: Settings, use_cases: UseCases, parts: frozenset[Part]) -> None:
        self._settings = settings
        self._use_cases = use_cases
        self._parts = parts
        self._stopping = asyncio.Event()
        self._view_stop = asyncio.Event()
        self._opened = {part: asyncio.Event() for part in parts & CONSUMERS}
        self._tasks: list[asyncio.Task[None]] = []
        self._view: list[asyncio.Task[None]] = []
        self._server: HttpServer | None = None
        self._ops: HttpServer | None = None

    async def start(self) -> Running:
        cases = self._use_cases
        await cases.refresh()
        self._view.append(self._turns("view", cases.refresh, REFRESH_S))
        if Part.API in self._parts:
            self._view.append(self._turns("registration", cases.producer.turn, REGISTER_S))
            self._view.append(self._turns("readiness", cases.readiness.turn, LOOK_S))
            app = create_app(cases.api(self._settings), metrics_here=self._settings.metrics_port is None)
            most = self._settings.http_connections_max
            self._server = HttpServer(app, self._settings.host, self._settings.port, connections_max=most)
            self._tasks.append(_task("api", self._server.serve()))
        if self._settings.metrics_port is not None:
            self._ops = HttpServer(create_ops_app(), self._settings.host, self._settings.metrics_port)
            self._view.append(_task("metrics", self._ops.serve()))
        self._tasks += [_task(part.value, self._loop(part)) for part in sorted(self._parts - {Part.API})]
        url = None if self._server is None else self._server.url
        log(Action.STARTED, parts=",".join(sorted(self._parts)), url=url)
        return Running(url=url, parts=self._parts)

    def _turns(self, name: str, turn: Turn, interval_s: float) -> asyncio.Task[None]:
        clock = self._use_cases.adapters.clock
        return _task(name, take_turns(name, turn, interval_s=interval_s, stop=self._view_stop, clock=clock))

    def _loop(self, part: Part) -> Coroutine[None, None, None]:
        cases, stop = self._use_cases, self._stopping
        transport, clock, orders = cases.adapters.transport, cases.adapters.clock, cases.adapters.orders
        match part:
            case Part.ORDER:
                topic, opened = cases.topics.order, self._opened[part]
                return order.run(transport, topic, cases.intake, stop=stop, clock=clock, opened=opened)
            case Part.TIMEOUT:
                expiry = PaymentExpiry(orders, cases.endings, clock)
                topic, opened = cases.topics.payment_timeout, self._opened[part]
                return payment_timeout.run(transport, topic, expiry, stop=stop, clock=clock, opened=opened)
            case Part.EVENTS:
                relay = OutboxRelay(orders, transport.publisher(), clock, cases.topics.events.name)
                return events.run(relay, cases.leadership("outbox"), stop=stop, clock=clock)
            case Part.KEEPER:
                loops = cases.keeper_loops(self._settings)
                return keeper.run(loops, cases.leadership(), stop=stop, clock=clock)
            case Part.API:
                raise AssertionError("the API is a server, not a loop")

    async def works(self, stop: asyncio.Event) -> bool:
        """Wait until the consumers are open, which may take as long as the broker is away; False: something else came
        first, `stop` or the death of a part. An API waits for nothing."""
        if Part.API in self._parts or not self._opened:
            return True
        opened = asyncio.create_task(self._until_opened())
        await self._wait_for(stop, opened)
        works = opened.done()
        opened.cancel()
        return works

    async def _until_opened(self) -> None:
        for opened in self._opened.values():
            await _until(opened)

    async def run_until(self, stop: asyncio.Event) -> int:
        """Wait for `stop`, or for the death of a part; then stop within `stop_timeout_s`."""
        died = await self._wait_for(stop)
        for task in died:
            error = None if task.cancelled() else task.exception()
            warn(Action.PART_DIED, part=task.get_name(), error=None if error is None else repr(error))
        drained = await self._stop()
        log(Action.STOPPED, drained=drained)
        return 0 if drained and not died else 1

    async def _wait_for(self, stop: asyncio.Event, *others: asyncio.Task[None]) -> set[asyncio.Task[None]]:
        """The parts that died. None: `stop` came, or one of the others."""
        stopped = _task("stop", _until(stop))
        background = {*self._tasks, *self._view, *self._use_cases.adapters.background}
        await asyncio.wait({stopped, *others, *background}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return {task for task in background if task.done()}

    async def _stop(self) -> bool:
        """Intake first, then what is in flight, then the listener, the loops, and this process's view of the sales.

        The listener closes after the drain: until then /readyz says "stopping", and who still comes to reserve hears a
        503 that says why, instead of a refused connection.
        """
        log(Action.STOPPING, parts=",".join(sorted(self._parts)))
        self._use_cases.readiness.stop()
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s):
                drained = await self._drain()
                if self._server is not None:
                    self._server.stop()
                self._stopping.set()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                self._view_stop.set()
                if self._ops is not None:
                    self._ops.stop()
                await asyncio.gather(*self._view, return_exceptions=True)
        except TimeoutError:
            # Both: before Python 3.12 `wait_for`, which redis-py uses, may lose a cancellation.
            self._stopping.set()
            self._view_stop.set()
            for task in (*self._tasks, *self._view):
                task.cancel()
            await asyncio.gather(*self._tasks, *self._view, return_exceptions=True)
            return False
        return drained

    async def _drain(self) -> bool:
        """Whether all that was in flight is decided. Who waits for the rest hears so while the listener is still up."""
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s * DRAIN_SHARE):
                await self._use_cases.reserve.drain()
        except TimeoutError:
            self._use_cases.reserve.abandon()
            return False
        return True


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def _task(name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)
