"""Whether a database has the schema that this release needs. Every part asks when it starts and with each look at its
readiness, and needs no Alembic for it, which is 11 MB of a process: that is `migrate`'s."""

from __future__ import annotations

from functools import cache

from sqlalchemy import inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import transactions
from service.adapters.sql.database import Database
from service.resources import sql_folder

REVISIONS = "alembic_version"
"""Alembic's own table: one row, the revision that was reached."""

REMEDY = "run `dropgate migrate`"


async def revision(database: Database) -> str | None:
    """The schema's revision; None: no migration has run."""
    return await transactions.read(database, revision_of)


async def revision_of(connection: AsyncConnection) -> str | None:
    if not await connection.run_sync(lambda it: inspect(it).has_table(REVISIONS)):
        return None
    found = (await connection.execute(text(f"SELECT version_num FROM {REVISIONS}"))).scalar_one_or_none()  # noqa: S608
    return None if found is None else str(found)


async def schema_problem(database: Database) -> str | None:
    """Why this database is not as this release needs it, with the remedy; None: it is."""
    found = await revision(database)
    wanted = head()
    if found is None:
        return f"The database has no Dropgate tables: {REMEDY}."
    if int(found) < int(wanted):
        return f"The database is at schema {found}, this release needs {wanted}: {REMEDY}."
    return None


@cache
def head() -> str:
    """The revision that this release needs. Revisions are numbers that grow, and begin the names of their files."""
    found = [path.name.partition("_")[0] for path in (sql_folder() / "migrations" / "versions").glob("[0-9]*_*.py")]
    return max(found, key=int)
