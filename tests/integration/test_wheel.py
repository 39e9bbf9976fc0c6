"""The wheel, installed without a checkout: its Lua and SQL are in it, the demo runs from an empty folder, and with its
extras it works on real servers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fixtures.wheel_extras import link_dependencies
from tests.servers.mariadb import MariaDB
from tests.servers.rocketmq import RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(420)]

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 180
DEMO_TIMEOUT_S = 200


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None, timeout_s: int = BUILD_TIMEOUT_S) -> str:
    """Its output; it must exit with 0."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package alone in a folder; its dependencies are those of the Python that runs the tests."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run([*pip, "--target", str(folder), str(wheel)], cwd=folder)
    return folder


def test_the_wheel_has_every_script_and_migration_of_the_checkout(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder, suffixes in {"scripts/lua": {".lua"}, "sql": {".sql", ".py"}}.items():
        files = [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
        assert files
        for path in files:
            inside = f"service/_resources/{folder.split('/')[-1]}/{path.relative_to(ROOT / folder).as_posix()}"
            assert inside in packed, f"the wheel lacks {inside}"
    assert not [name for name in packed if name.startswith("tests/")]


def test_what_is_installed_finds_its_own_files_and_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = "import service, service.resources as r; print(service.__file__, r.lua_folder(), r.sql_folder(), sep='\\n')"
    for line in run(isolated(installed, "-c", code), cwd=tmp_path).splitlines():
        assert Path(line).is_relative_to(installed), line


def test_the_demo_of_the_wheel_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    command = isolated(installed, "-m", "service", "demo", "--buyers", "200", "--stock", "20")
    run(command, cwd=tmp_path, env=nobodys(), timeout_s=DEMO_TIMEOUT_S)


@pytest.fixture(scope="module")
def without_extras(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A Python with the wheel and what it asks for."""
    return fresh(installed, (), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def with_extras(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same after `pip install "dropgate[mysql,rocketmq5]"`."""
    return fresh(installed, ("mysql", "rocketmq5"), tmp_path_factory.mktemp("extras"))


def fresh(installed: Path, extras: tuple[str, ...], folder: Path) -> list[str]:
    (found,) = installed.glob("dropgate-*.dist-info")
    link_dependencies(Distribution.at(found), extras, folder)
    program = (
        f"import runpy, sys; sys.path[:0] = {[str(installed), str(folder)]!r}; sys.argv[0] = 'dropgate'; "
        "runpy.run_module('service', run_name='__main__')"
    )
    return [sys.executable, "-I", "-S", "-c", program]


def test_the_wheel_with_its_extras_works_on_a_real_broker_and_database(
    with_extras: list[str], rocketmq_quick: RocketMQ, mariadb: MariaDB, tmp_path: Path
) -> None:
    env = nobodys() | {
        "DROPGATE_BROKER_URL": rocketmq_quick.url,
        "DROPGATE_ROCKETMQ_NAMESERVER": rocketmq_quick.name_server,
        "DROPGATE_TOPIC_PREFIX": f"t{uuid4().hex[:12]}",
        "DROPGATE_DATABASE_URL": mariadb.new_database(),
    }
    for command, says in {
        ("migrate",): "The database is at revision",
        ("topics", "create"): "Made: ",
        ("topics", "check"): "All topics and groups are there.",
    }.items():
        assert says in run([*with_extras, *command], cwd=tmp_path, env=env)


@pytest.mark.parametrize(
    ("command", "settings", "extra"),
    [
        (("migrate",), {"DROPGATE_DATABASE_URL": "mysql://127.0.0.1/dropgate"}, "mysql"),
        (
            ("topics", "create"),
            {"DROPGATE_BROKER_URL": "rocketmq5://127.0.0.1:8081", "DROPGATE_ROCKETMQ_NAMESERVER": "127.0.0.1:9876"},
            "rocketmq5",
        ),
    ],
    ids=["mysql", "rocketmq5"],
)
def test_an_extra_that_is_missing_is_named(
    without_extras: list[str], command: tuple[str, ...], settings: dict[str, str], extra: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*without_extras, *command], cwd=tmp_path, env=nobodys() | settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"pip install 'dropgate[{extra}]'" in done.stderr


def nobodys() -> dict[str, str]:
    """The environment without anybody's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DROPGATE_", "PYTHON"))}


def isolated(installed: Path, *arguments: str) -> list[str]:
    """This Python with the installed package before everything, so that an editable checkout is not what is found."""
    match arguments:
        case ("-c", code):
            program = code
        case ("-m", module, *rest):
            program = (
                f"import runpy; sys.argv = [{module!r}, *{rest!r}]; runpy.run_module({module!r}, run_name='__main__')"
            )
        case _:
            raise ValueError(arguments)
    return [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {program}"]
