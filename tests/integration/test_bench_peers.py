"""The yardsticks of the bench: RocketMQ's own Java client, on a real broker, and where it cannot be had."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from bench.figures import Figure, Measure
from bench.peers import java
from bench.peers.java import Failed, Load, Measured, Missing, measure
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.ports.messaging import TopicType
from tests.fixtures.stage_tools import until
from tests.servers import install
from tests.servers.rocketmq import PROBE_TOPIC, RocketMQ

PATIENT_S = 15.0
"""For a busy machine; nothing here is expected to take it."""
QUEUES = 3
NOWHERE = Load(name_server="127.0.0.1:9", topic="no-matter", threads=1, seconds=60.0)
NOTHING = '{"count":0,"seconds":1,"p50_ms":0,"p99_ms":0,"p999_ms":0,"errors":3,"warm_up":0,"began_s":0}'

Jdk = Callable[[str, str], None]


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient(RemotingOptions(timeout_s=PATIENT_S))
    yield client
    await client.close()


@pytest.fixture
async def topic(client: RemotingClient, rocketmq_quick: RocketMQ) -> str:
    """Of type TRANSACTION, a test's own."""
    name = f"peers-{uuid4().hex[:12]}"
    await BrokerAdmin(client, rocketmq_quick.broker).create_topic(name, TopicType.TRANSACTION, queues=QUEUES)
    return name


@pytest.fixture
def jdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jdk:
    """Two shell scripts in its place: what becomes of a process is no matter of Java."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    def made(javac: str, java_: str) -> None:
        for name, script in (("javac", javac), ("java", java_)):
            program = tmp_path / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    return made


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """As it looks, with nothing in it."""
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "rocketmq-client-5.4.0.jar").touch()
    return folder


async def bench_peers(*arguments: str) -> tuple[int | None, bytes, bytes]:
    """Its exit code, and what it printed on both channels."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.peers", *arguments),
        cwd=install.ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    return process.returncode, out, said


# --- on a real broker -------------------------------------------------------------------------------------------------


async def test_every_half_message_of_a_figure_is_committed(
    client: RemotingClient, rocketmq_quick: RocketMQ, topic: str
) -> None:
    load = Load(name_server=rocketmq_quick.name_server, topic=topic, threads=8, seconds=1.0, warm_up_s=0.5)
    outcome = await measure(load, install.jars())
    assert isinstance(outcome, Measured), outcome
    figure = outcome.figure
    assert (figure.measure, figure.unit, figure.clients) == (Measure.FLOOR, "messages", 8)
    assert figure.count > 0
    assert outcome.warm_up > 0
    assert figure.answers == {"SEND_OK": figure.count}, figure.note
    assert 1.0 <= figure.seconds < load.seconds + PATIENT_S
    assert figure.latency is not None
    assert 0 < figure.latency.p50_ms <= figure.latency.p99_ms <= figure.latency.p999_ms
    queues = BrokerQueues(client, rocketmq_quick.broker)
    async with asyncio.timeout(4 * PATIENT_S):
        while await delivered(queues, topic) < figure.count + outcome.warm_up:
            # A busy broker may lose a COMMIT. It asks again while somebody of the group is there.
            await measure(msgspec.structs.replace(load, topic=PROBE_TOPIC), install.jars())


async def delivered(queues: BrokerQueues, topic: str) -> int:
    """The broker puts a message into its topic's queue when it has its COMMIT."""
    return sum([(await queues.offsets(topic, queue)).end for queue in range(QUEUES)])


async def test_the_command_prints_the_figure(rocketmq_quick: RocketMQ, topic: str) -> None:
    where = ("--name-server", rocketmq_quick.name_server, "--topic", topic, "--jars", str(install.jars()))
    code, out, said = await bench_peers(*where, "--threads", "2", "--warm-up", "0", "--seconds", "0.5")
    assert (code, said) == (0, b"")
    figure = msgspec.json.decode(out, type=Figure)
    assert (figure.subject, figure.clients) == (java.SUBJECT, 2)
    assert figure.count > 0


# --- where it cannot be had -------------------------------------------------------------------------------------------


async def test_without_a_jdk_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jars: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = await measure(NOWHERE, jars)
    assert isinstance(outcome, Missing)
    assert "openjdk-17-jdk-headless" in outcome.reason


async def test_without_the_jars_the_command_says_how_to_get_them(jdk: Jdk, tmp_path: Path) -> None:
    jdk("exit 0", "exit 0")
    where = ("--name-server", NOWHERE.name_server, "--topic", NOWHERE.topic, "--jars", str(tmp_path))
    code, out, said = await bench_peers(*where)
    assert (code, out) == (1, b"")
    assert said.decode().startswith(f"error: there is no rocketmq-client-*.jar in {tmp_path}: 'make servers' brings")


@pytest.mark.parametrize(
    ("scripts", "reason"),
    [
        (("echo cannot find symbol >&2; exit 1", "exit 0"), "javac ended with 1: cannot find symbol"),
        (("exit 0", "echo no class >&2; exit 3"), "java ended with 3: no class"),
        (("exit 0", "echo hello"), "HalfMessages.java printed no result"),
        (
            ("exit 0", f"echo '{NOTHING}'; echo gone >&2"),
            "none of 3 half messages to no-matter was taken: gone",
        ),
    ],
)
async def test_a_program_that_fails_is_told_in_its_own_words(
    jdk: Jdk, jars: Path, scripts: Sequence[str], reason: str
) -> None:
    jdk(*scripts)
    outcome = await measure(NOWHERE, jars)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(reason)


# --- its process ------------------------------------------------------------------------------------------------------


async def test_a_measurement_that_is_cancelled_leaves_no_process(jdk: Jdk, jars: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    jdk("exit 0", f"echo $$ > {pid}.draft; mv {pid}.draft {pid}; exec sleep 60")
    measuring = asyncio.create_task(measure(NOWHERE, jars))

    async def runs() -> bool:
        return pid.exists()

    await until(runs, "it runs", PATIENT_S)
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_one_that_hangs_is_stopped_at_its_deadline(jdk: Jdk, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk("exit 0", "exec sleep 60")
    monkeypatch.setattr(java, "AROUND_S", 0.5)
    outcome = await measure(msgspec.structs.replace(NOWHERE, seconds=0.0, warm_up_s=0.0), jars)
    assert outcome == Failed("java was not done within 0.5 s and was stopped")
