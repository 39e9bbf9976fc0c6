"""Pieces of SQL that the two databases spell differently, and lists cut to a size that both take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from sqlalchemy import Executable, Table, bindparam, text
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection

CHUNK = 500
"""Ids of one IN list: SQLite takes 32,766 variables (999 before 3.32), and a longer list does not get faster."""

BY_KEY = "FORCE INDEX (PRIMARY)"
"""Of an UPDATE whose other conditions have an index, too: MariaDB may prefer that one, and would then lock rows of
others, and wait for theirs."""
IN_THIS_ORDER = "STRAIGHT_JOIN"
"""Of a SELECT with a LIMIT: MariaDB may begin with the other table, and read all of it to find nothing."""

T = TypeVar("T")


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def insert_or_ignore(connection: AsyncConnection, table: Table, rows: Sequence[dict[str, object]]) -> None:
    """Insert the rows whose key is not there yet. Any other problem of a row is an error, as with a plain INSERT."""
    if rows:
        statement = _insert_or_ignore(table, connection.dialect.name, tuple(rows[0]))
        await connection.execute(statement, list(rows))


@lru_cache(maxsize=64)
def _insert_or_ignore(table: Table, dialect: str, columns: tuple[str, ...]) -> Executable:
    """On MySQL INSERT IGNORE would also cut what is too long, and SQLAlchemy's own ON DUPLICATE KEY is not one that
    aiomysql sends as one statement for many rows: so it is spelled out."""
    if dialect == "sqlite":
        return sqlite_insert(table).on_conflict_do_nothing()
    names = ", ".join(f"`{name}`" for name in columns)
    values = ", ".join(f":{name}" for name in columns)
    key = next(iter(table.primary_key.columns)).name
    insert = f"INSERT INTO {table.name} ({names}) VALUES ({values}) ON DUPLICATE KEY UPDATE `{key}` = `{key}`"  # noqa: S608
    return text(insert).bindparams(*(bindparam(name, type_=table.c[name].type) for name in columns))
