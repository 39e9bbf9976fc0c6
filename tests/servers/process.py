"""A server's process: it dies with ours, keeps its output in a file, and is waited for by a condition."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from service import die_with_parent

LOG_TAIL = 30
LOOK_S = 0.05
STOP_DEADLINE_S = 20.0

LAUNCHER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers")
"""The kernel ends a server with the thread that started it (die_with_parent.py): this one lives as long as we do."""


class ServerFailed(RuntimeError):
    """A server cannot be used; the message says why, and what to do."""


class ServerProcess:
    """It may be started again after it has ended."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = command
        self._folder = folder
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._popen().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Begin it, and wait for nothing."""
        LAUNCHER.submit(self._spawn).result()

    def _spawn(self) -> None:
        wrapper = [sys.executable, "-I", die_with_parent.__file__, str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*wrapper, *self._command],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: the servers go last
            )

    def wait_until(self, ready: Callable[[], bool], what: str, within_s: float) -> None:
        """ServerFailed, with the end of the log, when it has ended or the deadline is past."""
        until = time.monotonic() + within_s
        while not ready():
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                raise ServerFailed(f"{self.name} ended with {code} before {what}\n{self.log_end()}")
            if time.monotonic() > until:
                raise ServerFailed(f"{self.name}: not within {within_s:.0f} s: {what}\n{self.log_end()}")
            time.sleep(LOOK_S)

    def send(self, signal_: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, SIGTERM; waits for nothing."""
        os.kill(self.pid, signal_)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, within_s: float = STOP_DEADLINE_S) -> None:
        """Asked first, killed at the deadline. One that was paused is woken to hear it."""
        if self.running:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen().wait(within_s)
        self.kill()

    def _popen(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    def log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return f"--- the end of {self.log}:\n" + "\n".join(lines[-LOG_TAIL:])
