"""The README's fleet on real servers: its commands as they stand, but for the two ports, which others may hold."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pymysql
import pytest
from sqlalchemy.engine import make_url

from tests.fixtures.proc import descendants, is_alive
from tests.fixtures.processes import ROOT, eventually
from tests.servers.ports import free_ports

pytestmark = [
    pytest.mark.server,
    pytest.mark.rocketmq,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

FENCED = re.compile(r"^```(bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READY_WITHIN_S = 180.0
COMMANDS_S = 300.0
ENDS_WITHIN_S = 30.0
PORTS = ("8080", "8090")
ENDS_WHAT_IT_BEGAN = "trap 'jobs -p | xargs -r kill' EXIT"
"""Also where a command fails, and the last line is not come to."""
CHECKOUT = ("Makefile", "consumers", "pyproject.toml", "requirements", "scripts", "service", "sql", "tests")


def section(heading: str) -> dict[str, str]:
    """Its blocks: a command of a `console` without its prompt."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {block[1]: block[2].removeprefix("$ ") for block in FENCED.finditer(text)}


@pytest.fixture
def checkout(home: Path) -> Path:
    """This one, but what it keeps is its own: no settings of servers that somebody runs meanwhile, no `.dropgate`."""
    for name in CHECKOUT:
        (home / name).symlink_to(ROOT / name)
    (home / ".venv").symlink_to(sys.prefix)
    return home


@pytest.fixture
def in_terminal(checkout: Path) -> Iterator[Callable[[str, str], subprocess.Popen[bytes]]]:
    """A shell of its own with a command; what it printed is in the named file. Nothing of it outlives the test."""
    shells: list[subprocess.Popen[bytes]] = []

    def begin(command: str, output: str) -> subprocess.Popen[bytes]:
        with (checkout / output).open("wb") as out:
            shells.append(
                subprocess.Popen(
                    ["bash", "-eu", "-o", "pipefail", "-c", command],
                    cwd=checkout,
                    env=terminal(checkout),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )
        return shells[-1]

    yield begin
    for shell in shells:
        end(shell)
    for printed in checkout.glob("*.txt"):
        print(f"--- {printed.name}:\n{printed.read_text()}")


def end(shell: subprocess.Popen[bytes]) -> None:
    """And all that it began."""
    family = {shell.pid} | descendants(shell.pid)
    for pid in filter(is_alive, family):
        os.kill(pid, signal.SIGTERM)
    shell.wait(ENDS_WITHIN_S)
    eventually(lambda: not any(map(is_alive, family)), "all that a terminal began has ended")


def terminal(folder: Path) -> Mapping[str, str]:
    """Nobody's settings, and no traces of the `make` that runs this test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DROPGATE_", "MAKE", "MFLAGS"))}
    return kept | {"TMPDIR": str(folder)}


def test_the_fleet_of_the_readme_sells_on_real_servers(
    checkout: Path, in_terminal: Callable[[str, str], subprocess.Popen[bytes]]
) -> None:
    blocks = section("Your own servers")
    servers = in_terminal(blocks["console"], "servers.txt")
    kept = checkout / ".servers" / "env"
    eventually(lambda: kept.exists() and kept.read_text(), "make servers says where they are", READY_WITHIN_S)

    fleet = in_terminal(on_free_ports(blocks["bash"]), "fleet.txt")
    fleet.wait(COMMANDS_S)
    said = (checkout / "fleet.txt").read_text()
    assert fleet.returncode == 0
    assert "All topics and groups are there." in said
    assert "Balanced: shoe-drop" in said
    assert orders_in(kept, sale="shoe-drop", buyer="anna", status="awaiting_payment") == 1

    servers.send_signal(signal.SIGTERM)
    eventually(lambda: not kept.exists(), "the settings go with the servers")


def on_free_ports(commands: str) -> str:
    for port in PORTS:
        assert f"--port {port} " in commands
        commands = commands.replace(port, str(free_ports()))
    return f"{ENDS_WHAT_IT_BEGAN}\n{commands}wait\n"


def orders_in(env_file: Path, *, sale: str, buyer: str, status: str) -> int:
    (found,) = re.findall(r"^export DROPGATE_DATABASE_URL=(.+)$", env_file.read_text(), re.MULTILINE)
    url = make_url(found)
    connection = pymysql.connect(
        host=url.host, port=url.port or 0, user=url.username, password=url.password or "", database=url.database
    )
    with connection, connection.cursor() as cursor:
        query = "SELECT id FROM orders WHERE sale_id = %s AND buyer_id = %s AND status = %s"
        return cursor.execute(query, (sale, buyer, status))
