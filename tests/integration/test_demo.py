"""The demo for real: its own processes, over HTTP. However it ends, no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(150)]

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "service", "demo", "--seed", "5"]


def demo(*args: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, *args],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_in(home: Path) -> list[str]:
    """Command lines of living processes that name the folder: the server, and its Valkey."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if str(home) in line and "service demo" not in line:
            found.append(line)
    return found


def wait_until(what, *, deadline_s: float, process: subprocess.Popen[str] | None = None) -> None:
    until = time.monotonic() + deadline_s
    while not what():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def wait_until_it_sells(process: subprocess.Popen[str], home: Path) -> None:
    log = home / "server.log"
    wait_until(lambda: log.exists() and '"batch_decided"' in log.read_text(), deadline_s=60, process=process)
    assert processes_in(home)


def test_a_small_demo_balances_contradicts_nobody_and_starts_clean_again(tmp_path):
    home = tmp_path / "demo"
    for _ in range(2):
        process = demo("--buyers", "300", "--stock", "30", "--home", str(home), "--json", cwd=tmp_path)
        out, err = process.communicate(timeout=90)
        report = json.loads(out)
        assert report["problems"] == []
        assert process.returncode == 0, err
        assert report["ok"] is True
        assert report["paid"] == report["books"]["paid"] == 30
        assert report["resold"] == report["cancelled"] + report["expired"] > 0
        assert (report["oversold"], report["lost"], report["in_doubt"], report["contradictions"]) == (0, 0, 0, 0)
        assert report["books"]["balanced"] is True
        assert processes_in(home) == []


def test_ctrl_c_in_the_middle_ends_everything_quietly(tmp_path):
    home = tmp_path / "demo"
    process = demo("--buyers", "100000", "--stock", "100", "--home", str(home), cwd=tmp_path)
    wait_until_it_sells(process, home)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert processes_in(home) == []


@pytest.mark.faults
def test_a_killed_demo_takes_its_server_along(tmp_path):
    home = tmp_path / "demo"
    process = demo("--buyers", "100000", "--stock", "100", "--home", str(home), cwd=tmp_path)
    wait_until_it_sells(process, home)
    process.kill()
    process.communicate(timeout=10)
    wait_until(lambda: processes_in(home) == [], deadline_s=30)


def test_a_folder_that_is_not_a_demos_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    process = demo("--buyers", "10", "--home", str(tmp_path), cwd=tmp_path)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "not empty" in err
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_dev_goes_on_where_the_demo_ended_and_an_audit_beside_it_balances(tmp_path):
    home = tmp_path / "demo"
    process = demo("--buyers", "60", "--stock", "10", "--home", str(home), "--json", cwd=tmp_path)
    process.communicate(timeout=90)
    assert process.returncode == 0
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (home / "dev.log").open("w") as log:
        dev = subprocess.Popen(
            [sys.executable, "-m", "service", "dev", "--home", str(home), "--port", "0"],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until((home / "running.json").exists, deadline_s=60)
        audit = subprocess.run(
            [sys.executable, "-m", "service", "audit", "--home", str(home), "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found = json.loads(audit.stdout)
        assert audit.returncode == 0, found
        assert found["sales"][0]["sql"]["paid"] == 10
    finally:
        dev.send_signal(signal.SIGINT)
        assert dev.wait(30) == 0
    assert processes_in(home) == []
