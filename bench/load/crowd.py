"""The crowd: clients in a closed loop, or requests by a clock; both count the same way."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque

from bench.figures import latency_of
from bench.load.connection import Connection
from bench.load.hostile import Hostile
from bench.load.requests import bytes_for, greeting
from bench.load.spec import LoadResult, LoadSpec

CONNECTED_S = 60.0
"""For all connections, each with its first answer: a thousand take about one."""
ANSWER_S = 30.0
"""After the last request: longer than any answer of ours takes."""
TICK_S = 0.001
"""Of the clock that paces requests: well below the latencies it is there to measure."""
RESERVED = frozenset({200, 202})


class Crowd:
    """`told` grows by one int a reservation: bounded by the stock of the sale."""

    def __init__(self, spec: LoadSpec) -> None:
        self._spec = spec
        self._bytes = bytes_for(spec)
        self._hostile = Hostile(spec)
        self._next = spec.first_buyer
        self._end = None if spec.buyers_max is None else spec.first_buyer + spec.buyers_max
        self._free: deque[Connection] = deque()
        self._open = 0
        self._measured_from_s = self._asked_until_s = 0.0
        self._answers: Counter[str] = Counter()
        self._latencies_s: dict[str, list[float]] = {}
        self._waited_s = 0.0
        self._told: list[int] = []
        self._unheard: list[int] = []
        self._late: deque[float] = deque()
        self._idle = asyncio.Event()

    async def run(self) -> LoadResult:
        async with asyncio.timeout(CONNECTED_S):
            connections = [await self._connect() for _ in range(self._spec.clients)]
        began_s = time.monotonic()
        self._measured_from_s = began_s + self._spec.warm_s
        self._asked_until_s = self._measured_from_s + self._spec.seconds
        cpu_at_s = time.process_time()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hostile.run(self._measured_from_s, self._asked_until_s))
            await self._good(connections)
            ended_s = min(time.monotonic(), self._asked_until_s) if self._end is None else time.monotonic()
            cpu_s = time.process_time() - cpu_at_s
        for connection in connections:
            connection.number = -1
            connection.close()
        seconds, closed = ended_s - self._measured_from_s, self._spec.per_s is None
        return LoadResult(
            seconds=seconds,
            began_s=self._measured_from_s,
            ended_s=ended_s,
            answers=dict(self._answers),
            latencies={code: found for code, waits in self._latencies_s.items() if (found := latency_of(waits))},
            told=self._told,
            unheard=self._unheard,
            hostile_acts=dict(self._hostile.acts),
            cpu_s=cpu_s * seconds / (ended_s - began_s),
            clients=self._spec.clients,
            starved=sum(not connection.heard for connection in connections) if closed else 0,
            under_way=self._waited_s / seconds if closed and self._end is None else None,
        )

    async def _connect(self) -> Connection:
        """And accepted: a busy server leaves those that come later in its backlog, and they would be measured as
        clients that nobody answers."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._answered, self._lost), self._spec.host, self._spec.port
        )
        await connection.greet(greeting(self._spec))
        return connection

    async def _good(self, connections: list[Connection]) -> None:
        await (self._closed(connections) if self._spec.per_s is None else self._paced(connections, self._spec.per_s))

    # --- the two ways to ask ------------------------------------------------------------------------------------------

    async def _closed(self, connections: list[Connection]) -> None:
        for connection in connections:
            self._ask(connection, time.monotonic())
        await self._quiet()

    async def _paced(self, connections: list[Connection], per_s: float) -> None:
        """A request that finds no free connection waits, and its wait counts: nothing is left out of the figures."""
        self._free.extend(connections)
        due_s = time.monotonic()
        gives_up_s = self._asked_until_s + ANSWER_S
        while (now_s := time.monotonic()) < self._asked_until_s or (self._late and now_s < gives_up_s):
            while due_s <= min(now_s, self._asked_until_s):
                self._late.append(due_s)
                due_s += 1 / per_s
            while self._late and self._free:
                self._ask(self._free.popleft(), self._late.popleft())
            await asyncio.sleep(TICK_S)
        for due_s in self._late:
            self._count("never_asked", due_s, time.monotonic())
        await self._quiet()

    async def _quiet(self) -> None:
        """Everyone has an answer. TimeoutError where one never comes."""
        patience_s = ANSWER_S + (max(0.0, self._asked_until_s - time.monotonic()) if self._end is None else 600.0)
        async with asyncio.timeout(patience_s):
            while self._open:
                self._idle.clear()
                await self._idle.wait()

    def _ask(self, connection: Connection, due_s: float) -> None:
        connection.number, connection.due_s = self._next, due_s
        self._next += 1
        self._open += 1
        connection.send(self._bytes.of(connection.number))

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _answered(self, connection: Connection, status: int, code: str) -> None:
        now_s = time.monotonic()
        if status in RESERVED:
            self._told.append(connection.number)
        if self._count(code, connection.due_s, now_s):
            connection.heard = True
        connection.number = -1
        self._open -= 1
        self._go_on(connection, now_s)

    def _count(self, code: str, due_s: float, now_s: float) -> bool:
        """Whether it is one of the measured time. In a closed loop that is when it was answered, and what is open at
        the end has its wait among the latencies, too; by a clock it is when it was due."""
        at_s = now_s if self._spec.per_s is None else due_s
        if at_s < self._measured_from_s:
            return False
        self._latencies_s.setdefault(code, []).append(now_s - due_s)
        if self._end is None and at_s > self._asked_until_s:
            return False
        self._answers[code] += 1
        self._waited_s += now_s - due_s
        return True

    def _go_on(self, connection: Connection, now_s: float) -> None:
        more = self._next < self._end if self._end is not None else now_s < self._asked_until_s
        if self._spec.per_s is not None:
            self._free.append(connection)
        elif more:
            self._ask(connection, now_s)
        if self._open == 0:
            self._idle.set()

    def _lost(self, connection: Connection) -> None:
        if connection.number < 0:
            return
        self._unheard.append(connection.number)
        self._answers["broken"] += 1
        self._open -= 1
        if self._open == 0:
            self._idle.set()
