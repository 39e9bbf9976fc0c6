"""The tables in code, the migrations and the rendered files for DBAs are one schema."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateIndex, CreateTable

from service.adapters.sql import migrate, schema, tables
from service.adapters.sql.database import Database
from tests.fixtures.processes import command
from tests.fixtures.sql import ON_MARIADB

ROOT = Path(__file__).resolve().parents[2]
MIGRATE = """
import asyncio, sys
from service.adapters.sql import migrate
from service.adapters.sql.database import Database

async def main():
    database = Database(sys.argv[1])
    print(await migrate.upgrade(database))
    await database.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("path", migrate.rendered_files(), ids=lambda path: path.name)
def test_the_rendered_file_is_what_the_migrations_make(path: Path) -> None:
    """After a change: `python -m service.adapters.sql.migrate`."""
    assert path.read_text() == migrate.rendered_files()[path]


def test_a_migrated_sqlite_file_has_the_tables_of_the_code(migrated_sqlite: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    engine = create_engine(f"sqlite:///{made}")
    tables.metadata.create_all(engine)
    engine.dispose()
    assert _sqlite_schema(migrated_sqlite) == _sqlite_schema(made)


def test_the_rendered_mysql_schema_has_the_tables_of_the_code() -> None:
    dialect = mysql.dialect()
    wanted = set()
    for table in tables.metadata.sorted_tables:
        wanted.add(_squeezed(str(CreateTable(table).compile(dialect=dialect))))
        wanted |= {_squeezed(str(CreateIndex(index).compile(dialect=dialect))) for index in table.indexes}
    rendered = {_squeezed(part) for part in migrate.render("mysql").split(";")}
    assert wanted <= rendered
    assert all("alembic_version" in other for other in rendered - wanted if other)


def test_the_head_is_alembics_and_who_asks_for_it_needs_no_alembic() -> None:
    migrations = ScriptDirectory(str(ROOT / "sql" / "migrations"))
    assert schema.head() == migrations.get_current_head()
    asks = "import sys, service.bootstrap, service.cli.serve; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asks], cwd=ROOT, timeout=60, check=False).returncode == 0


async def test_processes_that_migrate_at_once_do_it_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", MIGRATE, url, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        for _ in range(3)
    ]
    outputs = [(await process.communicate())[0].decode().strip() for process in processes]
    assert outputs == [schema.head()] * 3


@pytest.mark.parametrize("revisions", [["ae1027a6acf0"], ["0001"], ["123456789012"], ["ae1027a6acf0", "be1027a6acf0"]])
@pytest.mark.parametrize("its", ["sqlite", ON_MARIADB])
def test_the_database_of_another_application_is_named_so_and_stays_as_it_is(
    its: str, revisions: list[str], home: Path, request: pytest.FixtureRequest
) -> None:
    """A shop that migrates with Alembic too: its revision is no number, or one that looks like one of ours."""
    url = f"sqlite:///{home / 'shop.db'}" if its == "sqlite" else request.getfixturevalue("mariadb").new_database()
    made = ["CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"]
    made += [f"INSERT INTO alembic_version VALUES ('{revision}')" for revision in revisions]
    asyncio.run(_execute(url, made))
    for words in (("migrate",), ("serve",), ("sale", "show")):
        done = command(home, *words, settings={"DROPGATE_DATABASE_URL": url})
        assert done.returncode == 2
        assert done.stderr == (
            "dropgate: A setting is wrong. DROPGATE_DATABASE_URL: the database holds another application's schema "
            f"(alembic_version: {', '.join(revisions)}): give Dropgate a database of its own.\n"
        )
    assert asyncio.run(_tables(url)) == ["alembic_version"]


async def test_a_commit_is_on_disk_and_readers_do_not_wait(migrated_sqlite: Path, tmp_path: Path) -> None:
    """The settings that keep an acknowledged order through a power cut."""
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    database = Database(url)
    async with database.reading() as connection:
        found = {}
        for name in ("synchronous", "journal_mode", "foreign_keys", "busy_timeout"):
            found[name] = (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar()
    await database.close()
    assert found == {"synchronous": 2, "journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 1_000}


@pytest.mark.parametrize("url", ["postgresql://host/name", "sqlite://", "sqlite:///:memory:"])
def test_a_database_that_cannot_keep_orders_is_refused_at_start(url: str) -> None:
    with pytest.raises(ValueError, match="Dropgate"):
        Database(url)


async def _execute(url: str, statements: list[str]) -> None:
    database = Database(url)
    async with database.writing() as connection:
        for statement in statements:
            await connection.execute(text(statement))
        await connection.commit()
    await database.close()


async def _tables(url: str) -> list[str]:
    database = Database(url)
    async with database.reading() as connection:
        found = await connection.run_sync(lambda it: inspect(it).get_table_names())
    await database.close()
    return found


def _sqlite_schema(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' AND sql IS NOT NULL")
    found = {_squeezed(sql) for (sql,) in rows}
    connection.close()
    return found


def _squeezed(sql: str) -> str:
    """Without comments and without what only looks different."""
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return re.sub(r"\s*([(),])\s*", r"\1", re.sub(r"\s+", " ", " ".join(lines))).strip()
