"""One SQL database: its engine, set up so that every wait ends and every COMMIT is kept.

SQLite: WAL, so that readers never wait for the writer. `synchronous=FULL`, because in WAL mode NORMAL does not flush at
COMMIT: a power cut would take back orders whose message is acknowledged already. Transactions are begun by us
(BEGIN IMMEDIATE to write: the lock is taken before anything is read, so nothing read is stale), not by the driver,
which would begin at the first write only. Writers of one process queue in order; those of several wait `busy_timeout`.

MySQL and MariaDB: READ COMMITTED (a status poll sees what others committed, F52), strict mode, UTC. The session's
`wait_timeout` is short, because it is also how long the server keeps the row locks of a process that was paused or cut
off in mid-transaction. aiomysql has no read time-out: the deadline of transactions.py bounds each statement and COMMIT,
mysql_connection.py the connect and the look at a pooled connection, `_give_back` the ROLLBACK.

Connections are kept apart by what they are for (Lane), so that work that waits, at a locked row or a slow disk, keeps
nobody from reading, and a storm of reads does not keep this process from knowing whether it may sell.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from sqlalchemy import URL, Connection, QueuePool, event, exc, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service.adapters.sql.turns import SaleTurns
from service.adapters.sql.types import MYSQL_NAMES
from service.observability import metrics

DRIVERS = {"sqlite": "sqlite+aiosqlite", "mysql": "mysql+aiomysql", "mariadb": "mysql+aiomysql"}

SQLITE_BUSY_MS = 1_000
"""Shorter than any deadline: who waits longer tries again in transactions.py, which knows when to give up."""

MYSQL_IDLE_S = 30
MYSQL_RECYCLE_S = MYSQL_IDLE_S - 5
"""A pooled connection is replaced before the server would close it."""
GIVE_BACK_S = 1.0
"""A ROLLBACK of ours undoes a few rows. Callers come back this much after their deadline at the latest."""
MYSQL_PING_SHARE = 0.2
"""Of a caller's time, for the look at a pooled connection: enough is left for a new one. A server that is there answers
in milliseconds."""
MYSQL_LOCK_WAIT_S = 3
"""The server's default of 50 s would outlast every deadline of ours."""
MYSQL_SESSION = (
    "SET SESSION time_zone = '+00:00', "
    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO', "
    f"wait_timeout = {MYSQL_IDLE_S}, innodb_lock_wait_timeout = {MYSQL_LOCK_WAIT_S}"
)

WRITES = "dropgate_writes"
"""Execution option of a connection whose transaction will write: SQLite begins it with BEGIN IMMEDIATE."""


class Lane(Enum):
    """What a connection is for."""

    WORK = auto()
    """Transactions, and long reads of one snapshot."""
    READ = auto()
    """Reads that somebody waits for: GET, check-backs, lists of the sweeps."""
    VIEW = auto()
    """This process's view of the sale rows and keys, and its leases: late, they shut every gate."""


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions:
    """`timeout_s` bounds a read and a pool wait; `transaction_timeout_s` a writing transaction with all its retries.
    `pool_max` connections are for work; `read_max` and `view_max` come on top."""

    timeout_s: float = 5.0
    transaction_timeout_s: float = 10.0
    connect_timeout_s: float = 3.0
    pool_max: int = 8
    read_max: int = 4
    view_max: int = 2
    tls: ssl.SSLContext | None = None


class Database:
    """An engine for each lane, and their options; `sql/` adapters share one."""

    def __init__(self, url: str, options: DatabaseOptions | None = None) -> None:
        self.options = options or DatabaseOptions()
        self.url = with_driver(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        sizes = {
            Lane.WORK: self.options.pool_max,
            Lane.READ: self.options.read_max,
            Lane.VIEW: self.options.view_max,
        }
        make = _sqlite if self.is_sqlite else _mysql
        self.engines = {lane: make(self.url, self.options, size) for lane, size in sizes.items()}
        for lane in Lane:
            metrics.SQL_IN_USE.labels(lane.name.lower()).set_function(partial(self.in_use, lane))
        self.turns = SaleTurns()
        self._writer = asyncio.Lock() if self.is_sqlite else None

    @asynccontextmanager
    async def reading(self, *, one_snapshot: bool = False, lane: Lane = Lane.READ) -> AsyncIterator[AsyncConnection]:
        """A connection in a transaction that only reads: each statement sees the newest, or all of them one instant."""
        async with self._connected(lane, one_snapshot=one_snapshot, writes=False) as connection:
            yield connection

    @asynccontextmanager
    async def writing(self, *, one_snapshot: bool = False, lane: Lane = Lane.WORK) -> AsyncIterator[AsyncConnection]:
        """A connection whose transaction may write. The caller commits; leaving without it rolls back."""
        async with self._connected(lane, one_snapshot=one_snapshot, writes=True) as connection:
            yield connection

    @asynccontextmanager
    async def _connected(self, lane: Lane, *, one_snapshot: bool, writes: bool) -> AsyncIterator[AsyncConnection]:
        options: dict[str, object] = {WRITES: writes}
        if one_snapshot and not self.is_sqlite:
            options["isolation_level"] = "REPEATABLE READ"
        connection = await self.engines[lane].connect()
        try:
            yield await connection.execution_options(**options)
        finally:
            await _give_back(connection)

    def in_use(self, lane: Lane) -> int:
        """Connections that somebody has now."""
        pool = self.engines[lane].pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One writer at a time in this process, where the database has one lock anyway."""
        if self._writer is None:
            yield
            return
        async with self._writer:
            yield

    async def close(self) -> None:
        async with asyncio.timeout(self.options.timeout_s):
            await asyncio.gather(*[engine.dispose() for engine in self.engines.values()])


async def _give_back(connection: AsyncConnection) -> None:
    """Roll back what is open, and return the connection to its pool; one that cannot do that is thrown away instead.

    SQLAlchemy's own context manager waits for the ROLLBACK whatever happens, cancelled or not: through a dead network
    that kept the caller past its deadline, and the pool's place for as long as TCP tries. And its error took the place
    of what had happened: of a COMMIT that was answered, or of a cancellation, which its loop then did not hear.
    """
    with suppress(TimeoutError, exc.DBAPIError):
        async with asyncio.timeout(GIVE_BACK_S):
            await connection.close()


def _is_news(record: logging.LogRecord) -> bool:
    """SQLAlchemy logs a traceback for each pooled connection that is lost or given up: in an outage dozens. Whoever
    needed it has heard StoreUnavailable, and the pool has a new one."""
    failed = record.exc_info[1] if record.exc_info else None
    return type(failed).__name__ not in {"OperationalError", "InterfaceError", "CancelledError"}


logging.getLogger("sqlalchemy.pool.impl.AsyncAdaptedQueuePool").addFilter(_is_news)


def with_driver(url: str) -> URL:
    """The URL with our driver for its database: sqlite, mysql or mariadb."""
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend not in DRIVERS:
        raise ValueError(f"Dropgate stores orders in SQLite, MySQL or MariaDB, not in {backend!r}")
    return parsed.set(drivername=DRIVERS[backend])


def is_mysql(connection: AsyncConnection) -> bool:
    return connection.dialect.name in MYSQL_NAMES


def _sqlite(url: URL, options: DatabaseOptions, size: int) -> AsyncEngine:
    if options.tls is not None:
        raise ValueError("SQLite is a file: there is nothing to encrypt on the way to it")
    if url.database in (None, "", ":memory:"):
        raise ValueError("Dropgate needs a SQLite file: orders must survive the process")
    engine = create_async_engine(
        url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=options.timeout_s,
        hide_parameters=True,
        connect_args={"timeout": SQLITE_BUSY_MS / 1000},
    )
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")


def _mysql(url: URL, options: DatabaseOptions, size: int) -> AsyncEngine:
    try:
        from service.adapters.sql.mysql_connection import connect  # noqa: PLC0415 - the driver is an extra
    except ImportError:
        raise ValueError("MySQL and MariaDB need their driver: pip install 'dropgate[mysql]'") from None
    connect_args = {
        "charset": "utf8mb4",
        "connect_timeout": options.connect_timeout_s,
        "ping_timeout_s": options.timeout_s * MYSQL_PING_SHARE,
        "init_command": MYSQL_SESSION,
        "ssl": options.tls,
        "async_creator_fn": connect,
    }
    return create_async_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_size=size,
        max_overflow=0,
        pool_timeout=options.timeout_s,
        hide_parameters=True,
        pool_recycle=MYSQL_RECYCLE_S,
        pool_pre_ping=True,
        connect_args=connect_args,
    )
