"""The file: one connection a process, transactions shared by the calls that wait at the same time.

Statements run on the event loop (microseconds each, all pages cached) and only the COMMIT, which waits for the disk, in
a thread. Statements in a thread would have to win the interpreter lock back after each one: slower under load, not
faster. While a COMMIT is under way the next calls gather; they become one transaction and one fsync.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from service.adapters.embedded.settings import EmbeddedSettings
from service.domain.errors import BrokerUnavailable, DropgateError

SCHEMA = Path(__file__).with_name("schema.sql")
SCHEMA_VERSION = 1

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class Changes:
    """Wakes who waits for something deliverable. Take the ticket *before* looking, so that nothing is missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ticket(self) -> asyncio.Event:
        return self._event

    def happened(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, ticket: asyncio.Event, seconds: float) -> None:
        """Until a change after the ticket, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ticket.wait()


@dataclass(frozen=True, eq=False, slots=True)
class _Job:
    work: Work[Any]
    future: asyncio.Future[Any]
    writes: bool
    wakes: bool


class Database:
    """`write` returns once the change is on disk, or raises BrokerUnavailable: it may then be there or not."""

    def __init__(self, path: Path, settings: EmbeddedSettings) -> None:
        self.changes = Changes()
        self._path = path
        self._settings = settings
        self._jobs: list[_Job] = []
        self._running: Sequence[_Job] = ()
        self._called = asyncio.Event()
        self._open = False
        self._task: asyncio.Task[None] | None = None
        self._seen_version = 0

    async def open(self) -> asyncio.Task[None]:
        """Make or open the file. The task that is returned does all its work."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded-broker")
        try:
            self._connection = await self._retry_while_busy(self._connect)
        except (sqlite3.Error, OSError) as error:
            raise BrokerUnavailable("embedded broker", f"{self._path}: {error}") from error
        self._open = True
        task = asyncio.create_task(self._work_off(), name="embedded broker: store")
        task.add_done_callback(self._refuse_the_rest)
        self._task = task
        return task

    async def write(self, work: Work[T], *, wakes: bool = False) -> T:
        """Run in a transaction, alone in a savepoint of it. `wakes`: something may be deliverable afterwards."""
        return await self._call(work, writes=True, wakes=wakes)

    async def read(self, work: Work[T]) -> T:
        return await self._call(work, writes=False, wakes=False)

    async def look_for_foreign_changes(self) -> None:
        """Wake the waiters if another process has written."""
        version = await self.read(_data_version)
        if version != self._seen_version:
            self._seen_version = version
            self.changes.happened()

    async def close(self) -> None:
        """Finish what was called, then let go of the file."""
        task, self._task = self._task, None
        if task is None:
            return
        self._open = False
        self._called.set()
        await asyncio.wait([task])
        await self._in_thread(self._connection.close)
        self._thread.shutdown()
        self.changes.happened()

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # timeout 0: waiting is ours (`_retry_while_busy`), SQLite's own would hold up the event loop.
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {int(self._settings.wal_bytes_max)}")
            _ensure_schema(connection)
        except (sqlite3.Error, BrokerUnavailable):
            connection.close()
            raise
        return connection

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _call(self, work: Work[T], *, writes: bool, wakes: bool) -> T:
        if not self._open:
            raise BrokerUnavailable("embedded broker", "it is not open")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(work, future, writes, wakes))
        self._called.set()
        return await future

    async def _work_off(self) -> None:
        while self._open or self._jobs:
            if not self._jobs:
                self._called.clear()
                await self._called.wait()
            self._running = [job for job in self._jobs[: self._settings.group_max] if not job.future.done()]
            del self._jobs[: self._settings.group_max]
            await self._run(self._running)

    async def _run(self, group: Sequence[_Job]) -> None:
        try:
            if any(job.writes for job in group):
                results = await self._transaction(group)
            else:
                results = await self._retry_while_busy(lambda: [self._one(job) for job in group])
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            results = [error] * len(group)
        for job, result in zip(group, results, strict=True):
            _answer(job.future, result)
        if any(job.wakes for job in group):
            self.changes.happened()

    async def _transaction(self, group: Sequence[_Job]) -> list[Any]:
        await self._retry_while_busy(lambda: self._connection.execute("BEGIN IMMEDIATE"))
        results = [self._one(job) for job in group]
        await self._in_thread(self._connection.commit)
        return results

    async def _retry_while_busy(self, call: Callable[[], T]) -> T:
        deadline = asyncio.get_running_loop().time() + self._settings.busy_s
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not _busy(error) or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(self._settings.busy_retry_s * (0.5 + random.random()))  # noqa: S311 - jitter

    def _one(self, job: _Job) -> Any:
        """The result, or the error as a value: one call's error is its own, not that of the group."""
        self._connection.execute("SAVEPOINT job")
        try:
            result = job.work(self._connection)
        except (sqlite3.Error, DropgateError) as error:
            self._connection.execute("ROLLBACK TO job")
            result = error
        self._connection.execute("RELEASE job")
        return result

    def _refuse_the_rest(self, _task: asyncio.Task[None]) -> None:
        """The store's task has ended, by `close` or by a defect: nobody may wait for it any longer."""
        if self._connection.in_transaction:
            self._connection.rollback()
        for job in (*self._running, *self._jobs):
            _answer(job.future, BrokerUnavailable("embedded broker", "its store has stopped"))
        self._jobs.clear()
        self._open = False
        self.changes.happened()


def _answer(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, sqlite3.Error):
        result = BrokerUnavailable("embedded broker", str(result))
    if isinstance(result, DropgateError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _busy(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _ensure_schema(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        if version != 0:
            raise BrokerUnavailable("embedded broker", f"its file has schema {version}, not {SCHEMA_VERSION}")
        for statement in SCHEMA.read_text().split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
