"""The wheel, installed without a checkout: its Lua and SQL are in it, and the demo runs from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DROPGATE_", "PYTHON"))}
    command = isolated(installed, "-m", "service", "demo", "--buyers", "200", "--stock", "20")
    run(command, cwd=tmp_path, env=kept, timeout_s=DEMO_TIMEOUT_S)


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
