"""RocketMQ's own Java client sends bare half messages (HalfMessages.java): what the broker takes without Dropgate.

COMMIT is one-way in that client: a call's answer means that the half message is stored and COMMIT is on its way. On a
busy machine a few got lost (seen: 11 of 38,271): the broker asks about them while a client of the group lives.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.figures import Figure, Latency, Measure
from bench.subjects import Subject
from service import die_with_parent

SUBJECT = Subject.JAVA_HALF
PROGRAM = Path(__file__).with_name("HalfMessages.java")
CLIENT = "rocketmq-client-"
"""How the client's jar begins; what it needs lies beside it."""
HEAP = "-Xmx256m"
"""16 MB are counters of latencies; the client itself lives in less than 64 MB."""
QUICKLY = ("-J-XX:TieredStopAtLevel=1", "-proc:none")
"""One small file: no time to optimise the compiler, and no look through all the jars for annotation processors."""
COMPILED_WITHIN_S = 60.0
"""2 s on an idle machine."""
AROUND_S = 60.0
"""For the JVM's start, the first connection, and the client's shutdown, which waits 3 s for itself."""
REAPED_WITHIN_S = 5.0
"""A killed process is gone at once, unless its disk is."""
SAID_BYTES = 400
"""Of the end of what a program said: the line that names the fault."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`topic` is there already, of type TRANSACTION. `threads`, each in a closed loop; `body_bytes` do not compress.

    The JVM compiles while it warms up, the broker's too: after 2 s instead of 10 the rate was half as high.
    """

    name_server: str
    topic: str
    threads: int
    seconds: float
    warm_up_s: float = 5.0
    body_bytes: int = 200


class Missing(msgspec.Struct, frozen=True, tag=True):
    """It cannot be measured here; `reason` is one sentence, with the remedy."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It was tried; `reason` says how far it came, and the end of what was said."""

    reason: str


class Measured(msgspec.Struct, frozen=True, tag=True):
    """`warm_up` half messages more were sent and committed before those of the figure, which began at `began_s` of the
    monotonic clock."""

    figure: Figure
    warm_up: int
    began_s: float


Outcome = Measured | Missing | Failed


class _Result(msgspec.Struct):
    """The program's line."""

    count: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    errors: int
    warm_up: int
    began_s: float = 0.0
    """By System.nanoTime(), which is Python's monotonic clock on Linux."""


@dataclass(frozen=True, kw_only=True)
class _Tools:
    javac: Path
    java: Path
    jars: Path
    release: str
    """Of the client."""


@dataclass(frozen=True, kw_only=True)
class _Ended:
    code: int
    out: bytes
    said: str


async def measure(load: Load, jars: Path) -> Outcome:
    """`jars`: the folder of RocketMQ's published jars. Compiles first. Cancelled: its process is killed."""
    match _tools(jars, os.environ):
        case Missing() as missing:
            return missing
        case _Tools() as tools:
            with TemporaryDirectory(prefix="dropgate-bench-") as folder:
                return await _compile_and_run(load, tools, Path(folder))


async def _compile_and_run(load: Load, tools: _Tools, folder: Path) -> Outcome:
    compiler: list[str | Path] = [tools.javac, *QUICKLY, "-cp", f"{tools.jars}/*", "-d", folder, PROGRAM]
    compiled = await _finish(compiler, folder, COMPILED_WITHIN_S)
    if isinstance(compiled, Failed):
        return compiled
    deadline_s = load.warm_up_s + load.seconds + AROUND_S
    ran = await _finish([tools.java, *_arguments(load, tools, folder)], folder, deadline_s)
    return ran if isinstance(ran, Failed) else _outcome(load, tools, ran)


def _arguments(load: Load, tools: _Tools, folder: Path) -> Sequence[str | Path]:
    """The client logs into its user's home, whatever it is told: here that is ours, and goes with us."""
    jvm = [HEAP, "-XX:-UsePerfData", f"-Duser.home={folder}", "-Drocketmq.log.level=ERROR"]
    classpath = os.pathsep.join((str(folder), f"{tools.jars}/*"))
    numbers = (load.threads, load.body_bytes, load.warm_up_s, load.seconds)
    return [*jvm, "-cp", classpath, PROGRAM.stem, load.name_server, load.topic, *map(str, numbers)]


def _outcome(load: Load, tools: _Tools, ran: _Ended) -> Outcome:
    try:
        result = msgspec.json.decode(ran.out, type=_Result)
    except msgspec.MsgspecError as error:
        return Failed(f"{PROGRAM.name} printed no result ({error}): {ran.said}")
    if result.count == 0:
        return Failed(f"none of {result.errors} half messages to {load.topic} was taken: {ran.said}")
    return Measured(_figure(load, tools, result, ran.said), result.warm_up, result.began_s)


def _figure(load: Load, tools: _Tools, result: _Result, said: str) -> Figure:
    failed = {"failed": result.errors} if result.errors else {}
    return Figure(
        subject=SUBJECT,
        measure=Measure.FLOOR,
        clients=load.threads,
        unit="messages",
        count=result.count,
        seconds=result.seconds,
        latency=Latency(p50_ms=result.p50_ms, p99_ms=result.p99_ms, p999_ms=result.p999_ms),
        answers={"SEND_OK": result.count, **failed},
        note=f"client {tools.release}, {load.body_bytes} bytes" + (f"; first error: {said}" if failed else ""),
    )


# --- what it takes ----------------------------------------------------------------------------------------------------


def _tools(jars: Path, environ: Mapping[str, str]) -> _Tools | Missing:
    """The `java` beside the compiler: one that is older could not run what it compiles."""
    javac = _javac(environ)
    if javac is None:
        return Missing("there is no javac in JAVA_HOME or on PATH: install a JDK, on Debian openjdk-17-jdk-headless")
    clients = sorted(jars.glob(f"{CLIENT}[0-9]*.jar"))
    if not clients:
        return Missing(f"there is no {CLIENT}*.jar in {jars}: 'make servers' brings RocketMQ's jars into .servers/")
    release = clients[-1].stem.removeprefix(CLIENT)
    return _Tools(javac=javac, java=javac.with_name("java"), jars=jars.absolute(), release=release)


def _javac(environ: Mapping[str, str]) -> Path | None:
    """On PATH it is often a link into the JDK, whose `java` need not be the one on PATH."""
    home = environ.get("JAVA_HOME")
    found = (shutil.which("javac", path=str(Path(home, "bin"))) if home else None) or shutil.which(
        "javac", path=environ.get("PATH")
    )
    return Path(found).resolve() if found else None


# --- children ---------------------------------------------------------------------------------------------------------


async def _finish(command: Sequence[str | Path], folder: Path, within_s: float) -> _Ended | Failed:
    """Failed: it ended with another code than 0, or was killed at its deadline."""
    name = Path(command[0]).name
    try:
        async with asyncio.timeout(within_s):
            ended = await _run(command, folder)
    except TimeoutError:
        return Failed(f"{name} was not done within {within_s:g} s and was killed")
    return ended if ended.code == 0 else Failed(f"{name} ended with {ended.code}: {ended.said}")


async def _run(command: Sequence[str | Path], folder: Path) -> _Ended:
    """What it prints goes to files. Linux ends it with the thread that starts it: the loop's."""
    out, said = folder / "out", folder / "said"
    wrapper = [sys.executable, "-I", die_with_parent.__file__, str(os.getpid())]
    with out.open("wb") as to_out, said.open("wb") as to_said:
        process = await asyncio.create_subprocess_exec(
            *wrapper, *command, cwd=folder, stdin=DEVNULL, stdout=to_out, stderr=to_said
        )
    try:
        code = await process.wait()
    finally:
        await _killed(process)
    return _Ended(
        code=code, out=out.read_bytes(), said=said.read_bytes()[-SAID_BYTES:].decode(errors="replace").strip()
    )


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(REAPED_WITHIN_S):
            await process.wait()
