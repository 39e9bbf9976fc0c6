"""A child process: started with its environment, asked for its first line, watched, and ended whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from service import die_with_parent

START_S = 60.0
STOP_S = 20.0
REAPED_S = 5.0
"""A killed process is gone at once, unless its disk is."""
COMPLAINT_BYTES = 400
LINE_MAX = 64 * 1024 * 1024
"""A load result names every buyer who was told of a reservation."""


class BenchFailed(Exception):
    """The measurement cannot go on: what happened, and where its log is."""


@dataclass(frozen=True, kw_only=True)
class Child:
    name: str
    process: asyncio.subprocess.Process
    log: Path

    async def line(self, timeout_s: float = START_S) -> str:
        """Its next line of standard output."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise BenchFailed(f"{self.name} said nothing for {timeout_s:.0f} s; its log is {self.log}") from None
        if not line:
            raise BenchFailed(f"{self.name} has ended; its log is {self.log}")
        return line.decode()

    async def line_with(self, text: str) -> str:
        while text not in (line := await self.line()):
            pass
        return line

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        if self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self.process.wait()
                return
        with suppress(ProcessLookupError, TimeoutError):
            os.killpg(self.process.pid, signal.SIGKILL)
            async with asyncio.timeout(REAPED_S):
                await self.process.wait()


def log_of(name: str, folder: Path) -> Path:
    return folder / f"{name.replace(' ', '-')}.log"


@asynccontextmanager
async def child(
    name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: bytes | None = None
) -> AsyncIterator[Child]:
    log = log_of(name, folder)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", die_with_parent.__file__, str(os.getpid())),
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            limit=LINE_MAX,
        )
    it = Child(name=name, process=process, log=log)
    try:
        if stdin is not None:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
        yield it
    finally:
        await it.stop()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """`output`: all that it printed. What it complained of is in its log."""

    code: int
    output: bytes
    log: Path

    @property
    def complaint(self) -> str:
        """The end of it: the line that names the fault."""
        return self.log.read_bytes()[-COMPLAINT_BYTES:].decode(errors="replace").strip()


async def ended(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    stdin: bytes | None = None,
    timeout_s: float,
) -> Ended:
    """Run it to its end, whatever its code is. TimeoutError: it was not done by then, and was stopped."""
    async with child(name, command, environment, folder, stdin) as it, asyncio.timeout(timeout_s):
        assert it.process.stdout is not None
        output = await it.process.stdout.read()
        return Ended(code=await it.process.wait(), output=output, log=it.log)


async def said(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    stdin: bytes | None = None,
    timeout_s: float,
    codes: Collection[int] = (0,),
) -> str:
    """As `ended`; what it printed. BenchFailed where it ends with another code than these, or is not done."""
    try:
        done = await ended(name, command, environment, folder, stdin=stdin, timeout_s=timeout_s)
    except TimeoutError:
        log = log_of(name, folder)
        raise BenchFailed(f"{name} was not done after {timeout_s:.0f} s; its log is {log}") from None
    output = done.output.decode()
    if done.code not in codes:
        raise BenchFailed(f"{name} ended with {done.code}; its log is {done.log}: {output[-500:]}")
    return output
