"""The schema: bring a database up to this release, render it for DBAs. Whether it is up to it says `schema`.

Migrations only add; a column that nobody needs any more goes one release later. So a database that a newer release has
migrated already is right for this one too, and both can run while one replaces the other.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import transactions
from service.adapters.sql.database import Database, is_mysql
from service.adapters.sql.schema import head, revision_of
from service.domain.errors import StoreUnavailable
from service.resources import sql_folder

LOCK_NAME = "dropgate-migrate"
LOCK_WAIT_S = 60
UPGRADE_TIMEOUT_S = 3600.0
"""An ALTER of a large table takes its time; a migration that hangs still ends."""


async def upgrade(database: Database) -> str:
    """Bring the schema to this release's head, and return its revision. One process at a time does it.

    SettingRefused: the database is another application's, and stays as it is."""

    async def work(connection: AsyncConnection) -> str:
        async with _alone(connection):
            await revision_of(connection)
            await connection.run_sync(_upgrade)
            return str(await revision_of(connection))

    return await transactions.write(database, work, timeout_s=UPGRADE_TIMEOUT_S)


def render(dialect: str) -> str:
    """The statements that make the schema from nothing, as DDL of `mysql` or `sqlite`."""
    output = io.StringIO()
    command.upgrade(_config(dialect=dialect, output=output), "head", sql=True)
    statements = (line.rstrip() for line in output.getvalue().splitlines() if not line.startswith("--"))
    body = "\n".join(statements).strip()
    while "\n\n\n" in body:
        body = body.replace("\n\n\n", "\n\n")
    return f"-- Dropgate, schema {head()}, for {dialect}. Rendered from sql/migrations: do not edit.\n\n{body}\n"


def rendered_files() -> dict[Path, str]:
    """The files in sql/ that show the schema, and what has to be in them."""
    names = {"mysql": "schema.sql", "sqlite": "schema.sqlite.sql"}
    return {sql_folder() / name: render(dialect) for dialect, name in names.items()}


def _config(**attributes: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(sql_folder() / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(attributes)
    return config


def _upgrade(connection: Connection) -> None:
    command.upgrade(_config(connection=connection), "head")


@asynccontextmanager
async def _alone(connection: AsyncConnection) -> AsyncIterator[None]:
    """A writing transaction is alone on SQLite; MySQL commits at each DDL statement, so there it takes a named lock."""
    if not is_mysql(connection):
        yield
        return
    got = await connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": LOCK_NAME, "wait": LOCK_WAIT_S})
    if got.scalar() != 1:
        raise StoreUnavailable("sql", "another process is migrating this database")
    try:
        yield
    finally:
        await connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": LOCK_NAME})


if __name__ == "__main__":
    for path, content in rendered_files().items():
        path.write_text(content)
