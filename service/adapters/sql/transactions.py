"""Running work in a transaction: bounded in time, run again after a lost race, errors named in the domain's words."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Row, Select, exc
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.database import Database, Lane
from service.domain.errors import InvariantBroken, Permanent, RowRefused, StoreTimedOut, StoreUnavailable
from service.domain.ids import SaleId
from service.observability import metrics

ATTEMPTS = 12
"""With the pauses below this outlasts any deadline; it only stops a loop that fails at once each time."""
PAUSE_S = 0.010
PAUSE_MAX_S = 0.500
"""A sale's transactions take milliseconds: the first pause is one of them, the last one a busy second's share."""

MYSQL_CONTENTION = {1020: "changed", 1205: "lock_wait", 1213: "deadlock", 3572: "lock_wait"}
"""Record changed since it was read, lock wait time-out, deadlock, lock not available; by their names in the metric."""
MYSQL_ROW_REFUSED = frozenset({1264, 1366, 1406, 1146, 1054, 1064})
"""Out of range, not of this character set, too long; no such table or column, not understood."""
MYSQL_CHECK_VIOLATED = frozenset({3819, 4025})
MYSQL_DUPLICATE = 1062
MYSQL_CLIENT = range(2000, 3000)
"""The client's own: no connection, no answer, no TLS."""
MYSQL_SERVER = frozenset(
    {*MYSQL_CONTENTION, 1021, 1040, 1044, 1045, 1049, 1114, 1129, 1130, 1142, 1146, 1203, 1226, 1290, 1836}
)
"""Disk or table full, too many connections, access denied, no such database or table, host blocked, read-only."""
DUPLICATES_MAX = 2
"""Without a common lock two transactions may insert the same row; run again, the later one meets it. Twice: a bug."""
LEFT_ALONE_S = 5.0
"""How long a transaction whose caller has gone may take to end by itself: several waits for the lock (1 s each)."""
SQLITE_CONTENTION = frozenset({5, 6})
"""SQLITE_BUSY, SQLITE_LOCKED."""

T = TypeVar("T")
SqlWork = Callable[[AsyncConnection], Awaitable[T]]
AnySelect = Select[Any]

_random = secrets.SystemRandom()


async def write(
    database: Database,
    work: SqlWork[T],
    *,
    sale_ids: Collection[SaleId] = (),
    one_snapshot: bool = False,
    lane: Lane = Lane.WORK,
    timeout_s: float | None = None,
) -> T:
    """Run `work` and COMMIT. A deadlock or a lock wait runs it again, until the deadline. Work that locks the rows of
    sales names them: it waits for its turn at them before it takes a connection.

    StoreUnavailable: it may have been committed, but not after the deadline.
    """
    timeout_s = timeout_s or database.options.transaction_timeout_s
    ends_s = asyncio.get_running_loop().time() + timeout_s
    async with _bounded(timeout_s), database.turns.of(sale_ids):
        attempt = 0
        while True:
            try:
                return await _once(database, work, one_snapshot=one_snapshot, lane=lane, ends_s=ends_s)
            except exc.DBAPIError as error:
                attempt += 1
                if attempt >= _attempts(error):
                    raise
                metrics.SQL_RETRIES.labels(_why_again(error)).inc()
            await asyncio.sleep(_pause_s(attempt))


async def read(
    database: Database,
    work: SqlWork[T],
    *,
    one_snapshot: bool = False,
    lane: Lane = Lane.READ,
    timeout_s: float | None = None,
) -> T:
    """Run `work`, which only reads. A read of one snapshot may take long: it is work."""
    lane = Lane.WORK if one_snapshot else lane
    timeout_s = timeout_s or database.options.timeout_s
    async with _bounded(timeout_s), database.reading(one_snapshot=one_snapshot, lane=lane) as opened:
        return await work(opened)


async def read_rows(database: Database, statement: AnySelect, *, lane: Lane = Lane.READ) -> Sequence[Row[Any]]:
    """The rows of one statement."""

    async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
        return (await connection.execute(statement)).all()

    return await read(database, work, lane=lane)


async def _once(database: Database, work: SqlWork[T], *, one_snapshot: bool, lane: Lane, ends_s: float) -> T:
    async with database.turn():
        transaction = _transaction(database, work, one_snapshot=one_snapshot, lane=lane, ends_s=ends_s)
        return await (_to_its_end(transaction) if database.is_sqlite else transaction)


async def _transaction(database: Database, work: SqlWork[T], *, one_snapshot: bool, lane: Lane, ends_s: float) -> T:
    async with database.writing(one_snapshot=one_snapshot, lane=lane) as connection:
        result = await work(connection)
        if asyncio.get_running_loop().time() >= ends_s:
            # A process that slept with what it had read. GET has said by its clock what becomes of an id (§3.3).
            raise StoreTimedOut("sql", "the time was over before the COMMIT: rolled back")
        await connection.commit()
        return result


async def _to_its_end(transaction: Coroutine[None, None, T]) -> T:
    """Its caller may go, at a deadline or by a cancellation; the transaction ends first.

    aiosqlite runs a statement in a thread, which no cancellation reaches: a BEGIN IMMEDIATE that was left there would
    take the file's lock after everybody had gone, and keep it for ever.
    """
    task = asyncio.ensure_future(transaction)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=LEFT_ALONE_S)
        if not task.cancel() and not task.cancelled():
            task.exception()  # nobody is left to hear it
        raise


def _attempts(error: exc.DBAPIError) -> int:
    if is_contention(error):
        return ATTEMPTS
    return DUPLICATES_MAX if _mysql_code(error) == MYSQL_DUPLICATE else 1


def _why_again(error: exc.DBAPIError) -> str:
    code = _mysql_code(error)
    if code is None:
        return "busy"
    return MYSQL_CONTENTION.get(code, "duplicate")


def _pause_s(attempt: int) -> float:
    """Full jitter: two that met will not meet again."""
    return _random.uniform(0, min(PAUSE_MAX_S, PAUSE_S * 2**attempt))


@asynccontextmanager
async def _bounded(timeout_s: float) -> AsyncIterator[None]:
    """The deadline of everything within, and the driver's errors in the domain's words."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except exc.DBAPIError as error:
        # Not `from error`: a traceback that is logged would show the driver's message, and buyers' data in it.
        raise named(error).with_traceback(error.__traceback__) from None
    except exc.TimeoutError as error:
        raise StoreUnavailable("sql", "every connection is in use") from error
    except TimeoutError as error:
        raise StoreTimedOut("sql", f"no answer within {timeout_s} s") from error
    except OSError as error:
        raise StoreUnavailable("sql", type(error).__name__) from error


def is_contention(error: exc.DBAPIError) -> bool:
    """Another transaction was in the way: nothing was written, and it may go better next time."""
    if (sqlite_code := getattr(error.orig, "sqlite_errorcode", None)) is not None:
        return (sqlite_code & 0xFF) in SQLITE_CONTENTION
    return _mysql_code(error) in MYSQL_CONTENTION


def named(error: exc.DBAPIError) -> StoreUnavailable | Permanent:
    """The driver's error as one of ours. The statement and its values stay out of it: they hold buyers' data."""
    why = _why(error)
    code = _mysql_code(error)
    if isinstance(error, exc.IntegrityError) or code in MYSQL_CHECK_VIOLATED:
        return InvariantBroken("row", why)
    if isinstance(error, exc.DataError | exc.ProgrammingError | exc.NotSupportedError) or code in MYSQL_ROW_REFUSED:
        return RowRefused(why)
    return StoreUnavailable("sql", why)


def _mysql_code(error: exc.DBAPIError) -> int | None:
    first = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return first if isinstance(first, int) else None


def _why(error: exc.DBAPIError) -> str:
    """What is wrong, for an operator's eyes. MySQL writes values into its messages ("Duplicate entry 'anna' for key"),
    so of its errors only those come in words that are about the server and the way to it."""
    code = _mysql_code(error)
    if code is None:
        return _first_line(error) if getattr(error.orig, "sqlite_errorcode", None) is not None else _kind(error)
    return f"{code} {_first_line(error)}" if code in MYSQL_CLIENT or code in MYSQL_SERVER else f"MySQL error {code}"


def _kind(error: exc.DBAPIError) -> str:
    return type(error.orig).__name__


def _first_line(error: exc.DBAPIError) -> str:
    args = () if error.orig is None else error.orig.args
    return str(args[-1] if args else error.orig).partition("\n")[0][:200]
