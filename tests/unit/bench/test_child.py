"""A process of the bench that is run to its end: what it said, what it complained of, and that nothing of it stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from bench.stand.child import COMPLAINT_BYTES, BenchFailed, ended, said

PATIENT_S = 30.0


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


async def test_what_it_prints_and_what_it_complains_of_are_kept_apart(tmp_path: Path) -> None:
    script = "import sys; print(sys.stdin.read()); sys.stderr.write('x' * 1000 + ' no class\\n'); sys.exit(3)"
    done = await ended("a child", python(script), os.environ, tmp_path, stdin=b"hello", timeout_s=PATIENT_S)
    assert (done.code, done.output) == (3, b"hello\n")
    assert done.log == tmp_path / "a-child.log"
    assert done.complaint.endswith("x no class")
    assert len(done.complaint) < COMPLAINT_BYTES


async def test_a_code_that_is_not_expected_fails_with_its_words_and_its_log(tmp_path: Path) -> None:
    command = python("print('unwell'); raise SystemExit(1)")
    assert await said("audit", command, os.environ, tmp_path, timeout_s=PATIENT_S, codes={0, 1}) == "unwell\n"
    with pytest.raises(BenchFailed, match=rf"audit ended with 1; its log is {tmp_path}/audit.log: unwell"):
        await said("audit", command, os.environ, tmp_path, timeout_s=PATIENT_S)


async def test_one_that_is_not_done_in_time_is_stopped_and_said(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = ["/bin/sh", "-c", f"echo $$ > {pid}; exec sleep 60"]
    with pytest.raises(BenchFailed, match=rf"sleeper was not done after 2 s; its log is {tmp_path}/sleeper.log"):
        await said("sleeper", hangs, os.environ, tmp_path, timeout_s=2.0)
    assert not psutil.pid_exists(int(pid.read_text()))
