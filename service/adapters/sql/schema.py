"""Whether a database has the schema that this release needs. Every part asks when it starts and with each look at its
readiness, and needs no Alembic for it, which is 11 MB of a process: that is `migrate`'s."""

from __future__ import annotations

import re
from functools import cache

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables, transactions
from service.adapters.sql.database import Database
from service.domain.errors import SettingRefused
from service.resources import sql_folder

REVISIONS = "alembic_version"
"""Alembic's own table: one row, the revision that was reached. All who migrate with it have one of this name."""

OURS = re.compile(r"[0-9]{4}")
"""A revision of Dropgate's. Alembic gives others twelve hexadecimal digits, but some number theirs too."""

REMEDY = "run `dropgate migrate`"


async def revision_of(connection: AsyncConnection) -> str | None:
    """The schema's revision; None: no migration has run. SettingRefused: the tables are another application's."""
    has_revisions, has_sales = await connection.run_sync(_what_is_there)
    if not has_revisions:
        return None
    rows = await connection.execute(text(f"SELECT version_num FROM {REVISIONS}"))  # noqa: S608
    found = [str(revision) for revision in rows.scalars()]
    if found and not (has_sales and len(found) == 1 and OURS.fullmatch(found[0])):
        raise SettingRefused(
            "database_url",
            f"the database holds another application's schema ({REVISIONS}: {', '.join(sorted(found)[:2])}): "
            "give Dropgate a database of its own",
        )
    return found[0] if found else None


def _what_is_there(connection: Connection) -> tuple[bool, bool]:
    """Alembic's table, and one that no shop has by chance."""
    found = inspect(connection)
    return found.has_table(REVISIONS), found.has_table(tables.sale_epochs.name)


async def schema_problem(database: Database) -> str | None:
    """Why this database is not as this release needs it, with the remedy; None: it is. SettingRefused: it is another
    application's."""
    found = await transactions.read(database, revision_of)
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
