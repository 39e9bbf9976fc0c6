"""RocketMQ's own Java client sends bare half messages (HalfMessages.java): what the broker takes without Dropgate.

COMMIT is one-way in that client: a call's answer means that the half message is stored and COMMIT is on its way. On a
busy machine a few got lost (seen: 11 of 38,271): the broker asks about them while a client of the group lives.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.figures import Figure, Latency, Measure
from bench.stand.child import Ended, ended
from bench.subjects import Subject

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
    began_s: float
    """By System.nanoTime(), which is Python's monotonic clock on Linux."""


@dataclass(frozen=True, kw_only=True)
class _Tools:
    javac: Path
    java: Path
    jars: Path
    release: str
    """Of the client."""


async def measure(load: Load, jars: Path) -> Outcome:
    """`jars`: the folder of RocketMQ's published jars. Compiles first. Cancelled: its process is ended."""
    match _tools(jars, os.environ):
        case Missing() as missing:
            return missing
        case _Tools() as tools:
            with TemporaryDirectory(prefix="dropgate-bench-") as folder:
                return await _compile_and_run(load, tools, Path(folder))


async def _compile_and_run(load: Load, tools: _Tools, folder: Path) -> Outcome:
    compiler = [str(tools.javac), *QUICKLY, "-cp", f"{tools.jars}/*", "-d", str(folder), str(PROGRAM)]
    compiled = await _finish(compiler, folder, COMPILED_WITHIN_S)
    if isinstance(compiled, Failed):
        return compiled
    deadline_s = load.warm_up_s + load.seconds + AROUND_S
    ran = await _finish([str(tools.java), *_arguments(load, tools, folder)], folder, deadline_s)
    return ran if isinstance(ran, Failed) else _outcome(load, tools, ran)


def _arguments(load: Load, tools: _Tools, folder: Path) -> Sequence[str]:
    """The client logs into its user's home, whatever it is told: here that is ours, and goes with us. So does what a
    JVM leaves that crashes."""
    ours = [f"-XX:ErrorFile={folder}/crash.log", f"-Duser.home={folder}"]
    jvm = [HEAP, "-XX:-UsePerfData", *ours, "-Drocketmq.log.level=ERROR"]
    classpath = os.pathsep.join((str(folder), f"{tools.jars}/*"))
    numbers = (load.threads, load.body_bytes, load.warm_up_s, load.seconds)
    return [*jvm, "-cp", classpath, PROGRAM.stem, load.name_server, load.topic, *map(str, numbers)]


def _outcome(load: Load, tools: _Tools, ran: Ended) -> Outcome:
    try:
        result = msgspec.json.decode(ran.output, type=_Result)
    except msgspec.MsgspecError as error:
        return Failed(f"{PROGRAM.name} printed no result ({error}): {ran.complaint}")
    if result.count == 0:
        return Failed(f"none of {result.errors} half messages to {load.topic} was taken: {ran.complaint}")
    return Measured(_figure(load, tools, result, ran.complaint), result.warm_up, result.began_s)


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


async def _finish(command: Sequence[str], folder: Path, within_s: float) -> Ended | Failed:
    """Failed: it ended with another code than 0, or was stopped at its deadline. Its log goes with the folder."""
    name = Path(command[0]).name
    try:
        done = await ended(name, command, os.environ, folder, timeout_s=within_s)
    except TimeoutError:
        return Failed(f"{name} was not done within {within_s:g} s and was stopped")
    return done if done.code == 0 else Failed(f"{name} ended with {done.code}: {done.complaint}")


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
