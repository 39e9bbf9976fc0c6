"""MariaDB with the settings of a server that keeps what it has committed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pymysql

from tests.servers.install import program
from tests.servers.ports import free_ports
from tests.servers.process import ServerFailed, ServerProcess

READY_WITHIN_S = 60.0
USER, PASSWORD = "dropgate", "dropgate"
DATABASE = "dropgate"


class MariaDB:
    """`start` returns when it answers SELECT 1. Address and data stay over restarts."""

    def __init__(self, *settings: str) -> None:
        self._program, self._install_db = program("mariadbd"), program("mariadb-install-db")
        self.folder = Path(tempfile.mkdtemp(prefix="dropgate-mariadb-"))
        self.port = free_ports()
        self.ready_s = 0.0
        self.process = ServerProcess("mariadb", self._command(settings), self.folder)

    @property
    def url(self) -> str:
        """As DROPGATE_DATABASE_URL wants it."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """An empty one; its URL."""
        name = f"t{uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def execute(self, statement: str) -> None:
        """As the administrator, on a connection of its own."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        began = time.monotonic()
        try:
            if not (self.folder / "data").exists():
                self._make_data()
            self.process.launch()
            self.process.wait_until(self._answers, "SELECT 1 is answered", READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.monotonic() - began

    def restart(self) -> None:
        self.process.stop()
        self.start()

    def stop(self) -> None:
        """For good: the folder goes too."""
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        self.process.kill()

    # --- how it is started --------------------------------------------------------------------------------------------

    def _command(self, settings: Sequence[str]) -> list[str]:
        return [
            self._program,
            "--no-defaults",
            *_user(),
            f"--datadir={self.folder / 'data'}",
            f"--socket={self._socket}",
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--max-connections=200",
            "--skip-name-resolve",
            f"--init-file={self._init_file()}",
            *settings,
        ]

    @property
    def _socket(self) -> Path:
        return self.folder / "s"

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
            f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"mariadb-install-db failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except pymysql.OperationalError:
            return False
        else:
            return True

    def _connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            autocommit=True,
            connect_timeout=5,
            read_timeout=10,
        )


def _user() -> list[str]:
    """Root must say that it means it. Another user would also shed what makes the server die with us."""
    return ["--user=root"] if os.geteuid() == 0 else []
