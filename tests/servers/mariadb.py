"""MariaDB with the settings of a server that keeps what it has committed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql

from tests.servers.install import program
from tests.servers.one_process import OneProcessServer
from tests.servers.process import ServerFailed

USER, PASSWORD = "dropgate", "dropgate"
DATABASE = "dropgate_test"
"""By its name a bench knows that it may begin there."""


class MariaDB(OneProcessServer):
    name = "mariadb"
    executable = "mariadbd"
    answer = "SELECT 1 is answered"
    ready_within_s = 60.0

    roomy = ("--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M")
    """For what lives longer than a test: with the little that a test needs, a bench measures the disk."""

    def __init__(self, *settings: str) -> None:
        self._install_db = program("mariadb-install-db")
        super().__init__(*settings)

    @property
    def url(self) -> str:
        """As DROPGATE_DATABASE_URL wants it."""
        return self.url_of(DATABASE)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url_of(self, database: str, address: str | None = None) -> str:
        """`address`: of a proxy in front of it."""
        return f"mysql://{USER}:{PASSWORD}@{address or self.address}/{database}"

    def new_database(self) -> str:
        """An empty one; its URL."""
        name = f"t{uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def execute(self, statement: str) -> list[dict[str, Any]]:
        """As the administrator, on a connection of its own; the rows, by column."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    # --- how it is started --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if not self._data.exists():
            self._make_data()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _command(self, settings: Sequence[str]) -> list[str]:
        return [
            self._program,
            "--no-defaults",
            *_user(),
            f"--datadir={self._data}",
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--tmpdir={self.folder}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--max-connections=200",
            "--skip-name-resolve",
            f"--init-file={self._init_file()}",
            *settings,
        ]

    def _init_file(self) -> Path:
        """Run at each start: one statement a line."""
        path = self.folder / "init.sql"
        path.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        return path

    def _make_data(self) -> None:
        command = [
            self._install_db,
            "--no-defaults",
            *_user(),
            f"--datadir={self._data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        env = {**os.environ, "TMPDIR": str(self.folder)}
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"mariadb-install-db failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except pymysql.OperationalError:
            return False
        else:
            return True

    def _connect(self) -> pymysql.Connection[pymysql.cursors.DictCursor]:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            autocommit=True,
            connect_timeout=5,
            read_timeout=10,
            cursorclass=pymysql.cursors.DictCursor,
        )


def _user() -> list[str]:
    """Root must say that it means it. Another user would also shed what makes the server die with us."""
    return ["--user=root"] if os.geteuid() == 0 else []
