"""The demo's server: `dropgate dev` as a child process that never outlives the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

import service
from service.cli.demo.shop import DemoFailed
from service.cli.dev import KEYS, RUNNING, DevKeys, RunningFile

LOG = "server.log"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10
LOOK_S = 0.05
LOG_TAIL = 15


@dataclass(frozen=True, slots=True)
class Server:
    """The child, and where it keeps its things."""

    process: subprocess.Popen[bytes]
    home: Path

    @property
    def log(self) -> Path:
        return self.home / LOG

    def url(self) -> str | None:
        """Where it answers; None while it starts. DemoFailed if it has ended."""
        if (code := self.process.poll()) is not None:
            raise DemoFailed(
                f"The server ended by itself, with exit code {code}. The end of {self.log}:\n{self.log_end()}"
            )
        try:
            running = msgspec.json.decode((self.home / RUNNING).read_bytes(), type=RunningFile)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return running.url if running.pid == self.process.pid else None

    def keys(self) -> DevKeys:
        return msgspec.json.decode((self.home / KEYS).read_bytes(), type=DevKeys)

    def log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL:])


def environment(outside: Mapping[str, str], payment_window_s: int) -> dict[str, str]:
    """The child's environment: nobody's own stores, and waits that suit an audience."""
    kept = {name: value for name, value in outside.items() if not name.startswith("DROPGATE_")}
    source = str(Path(service.__file__).parent.parent)
    path = os.pathsep.join(part for part in (source, outside.get("PYTHONPATH")) if part)
    return kept | {
        "PYTHONPATH": path,
        "DROPGATE_REDIS_URL": "embedded",
        "DROPGATE_DATABASE_URL": "embedded",
        "DROPGATE_BROKER_URL": "embedded",
        "DROPGATE_PAYMENT_WINDOW_S": str(payment_window_s),
        "DROPGATE_SWEEP_AFTER_S": "5",
        # A machine that is busy with other things answers late: no reason to call a batch in doubt and ask about it.
        "DROPGATE_REDIS_TIMEOUT_S": "4",
        "DROPGATE_QUEUE_AGE_MAX_S": "6",
        "DROPGATE_TRANSACTION_TIMEOUT_S": "3",
        "DROPGATE_TRANSACTION_CHECK_INTERVAL_S": "1",
        "DROPGATE_STOP_TIMEOUT_S": str(STOP_TIMEOUT_S),
        "DROPGATE_LOG_JSON": "true",
    }


@contextmanager
def dev_server(home: Path, port: int, payment_window_s: int) -> Iterator[Server]:
    """Start it; stop it on the way out, whatever happened."""
    command = [sys.executable, "-m", "service", "dev", "--exit-with-parent", "--home", str(home), "--port", str(port)]
    with (home / LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            cwd=home,  # no dropgate.toml of the caller's
            env=environment(os.environ, payment_window_s),
            stdin=subprocess.PIPE,  # its end tells the child that the demo is gone
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which stops the child in good order
        )
    try:
        yield Server(process=process, home=home)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a bounded wait, SIGKILL. A Ctrl-C meanwhile kills at once."""
    try:
        if process.poll() is None:
            process.terminate()
        process.wait(STOP_TIMEOUT_S + 5)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
        process.kill()
        process.wait()
        if isinstance(why, KeyboardInterrupt):
            raise
    finally:
        if process.stdin is not None:
            process.stdin.close()


def wait_for_url(server: Server) -> str:
    """Until the server says where it answers."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (url := server.url()) is None:
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"The server did not start in {START_TIMEOUT_S:.0f} s. The end of its log:\n{server.log_end()}"
            )
        time.sleep(LOOK_S)
    return url
