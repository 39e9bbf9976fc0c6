"""The servers of the tests: ready when they say so, whole after a restart, gone with whoever started them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from tests.fixtures import real_servers
from tests.fixtures.proc import descendants, is_alive
from tests.fixtures.processes import ROOT, eventually
from tests.fixtures.servers import RealServer
from tests.servers import install
from tests.servers.mariadb import MariaDB
from tests.servers.ports import free_ports
from tests.servers.process import ServerFailed, ServerProcess
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import RocketMQ
from tests.servers.telling import Ended


def answers(url: str) -> bool:
    host, _, port = url.rpartition("@")[2].removeprefix("redis://").partition("/")[0].rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


# --- each -------------------------------------------------------------------------------------------------------------


def test_redis_has_what_dropgate_demands_and_keeps_its_data_over_a_restart(make_redis7: Any) -> None:
    redis: Redis = make_redis7()
    assert redis.call("CONFIG", "GET", "maxmemory-policy")[1] == b"noeviction"
    redis.call("SET", "kept", "1")
    redis.restart()
    assert redis.call("GET", "kept") == b"1"


def test_a_redis_may_be_wrong_on_purpose(make_redis7: Any) -> None:
    redis: Redis = make_redis7("--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
    assert redis.call("CONFIG", "GET", "maxmemory-policy")[1] == b"allkeys-lru"


def test_mariadb_gives_each_test_a_database_of_its_own_and_keeps_it_over_a_restart(make_mariadb: Any) -> None:
    mariadb: MariaDB = make_mariadb("--innodb-lock-wait-timeout=1")
    url, other = mariadb.new_database(), mariadb.new_database()
    assert url != other
    name = url.rpartition("/")[2]
    mariadb.execute(f"CREATE TABLE {name}.kept (id INT PRIMARY KEY)")
    mariadb.restart()
    with pytest.raises(pymysql.err.OperationalError, match="already exists"):
        mariadb.execute(f"CREATE TABLE {name}.kept (id INT PRIMARY KEY)")


@pytest.mark.slow
@pytest.mark.faults
async def test_a_broker_killed_and_started_again_has_its_topics_and_address(rocketmq_short: RocketMQ) -> None:
    from service.ports.messaging import TopicType

    client = RemotingClient(RemotingOptions(timeout_s=15.0))
    admin = BrokerAdmin(client, rocketmq_short.broker)
    await admin.create_topic("kept", TopicType.DELAY, queues=1)
    rocketmq_short.broker_process.kill()
    await asyncio.to_thread(rocketmq_short.start_broker)
    assert (await admin.topics())["kept"].type == "DELAY"
    await client.close()


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_server_that_is_missing_is_a_failure_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_which", lambda name: None)
    missing = pytest.raises(pytest.fail.Exception, match=r"apt-get install redis-server")
    with ExitStack() as stack, missing:
        real_servers._started(stack, Redis)
    with missing:
        RealServer("redis")


def test_missing_jars_are_a_failure_that_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "CACHE", tmp_path / ".servers")
    with ExitStack() as stack, pytest.raises(pytest.fail.Exception, match=r"python -m tests\.servers install"):
        real_servers._started(stack, RocketMQ)


def test_who_may_not_install_is_told_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "CACHE", tmp_path)
    monkeypatch.setattr(install, "_which", lambda name: None if name in {"java", "mvn"} else name)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ServerFailed, match="'apt-get install maven openjdk-17-jre-headless' as root"):
        install.install()


def test_a_server_that_ends_at_once_shows_its_last_words(tmp_path: Path) -> None:
    process = ServerProcess("short-lived", [sys.executable, "-c", "print('no such setting'); exit(3)"], tmp_path)
    process.launch()
    with pytest.raises(ServerFailed, match=r"(?s)ended with 3 before it answers.*no such setting"):
        process.wait_until(lambda: False, "it answers", 20)
    process.stop()


def test_a_server_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    process = ServerProcess("long-lived", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    thread = threading.Thread(target=process.launch)
    thread.start()
    thread.join()
    time.sleep(0.5)
    assert process.running
    process.kill()


def test_a_server_that_is_not_ready_in_time_is_a_failure(tmp_path: Path) -> None:
    process = ServerProcess("slow", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    process.launch()
    with pytest.raises(ServerFailed, match="not within 0 s: it answers"):
        process.wait_until(lambda: False, "it answers", 0.2)
    process.stop(0.5)
    assert not process.running


def test_ports_are_free_with_their_neighbours() -> None:
    port = free_ports((-2, 0, 1))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        assert free_ports((-2, 0, 1)) != port


@pytest.mark.parametrize(("ci", "outcome"), [("true", "failed"), ("", "skipped")])
def test_in_ci_a_test_that_skips_itself_fails(ci: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    skipped = pytest.TestReport("a test", ("", 0, ""), {}, "skipped", ("test.py", 1, "no server"), "call")
    making = real_servers.pytest_runtest_makereport()
    next(making)
    with pytest.raises(StopIteration) as made:
        making.send(skipped)
    assert made.value.value.outcome == outcome


# --- for a person -----------------------------------------------------------------------------------------------------


@contextmanager
def up(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m tests.servers up`; what the servers write goes into the folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "up", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.server
@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_servers_kept_up_for_a_person_say_where_they_are_and_go_with_their_command(
    home: Path, signal_: signal.Signals
) -> None:
    with up(home, "--json", "--only", "redis", "mariadb") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        servers = descendants(process.pid)
        assert sorted(said["settings"]) == ["DROPGATE_DATABASE_URL", "DROPGATE_REDIS_URL"]
        assert all(map(answers, said["settings"].values()))
        assert [it["server"] for it in said["servers"]] == ["redis", "mariadb"]
        assert all(Path(it["log"]).is_relative_to(home) for it in said["servers"])
        assert len(servers) >= 2
        process.send_signal(signal_)
        assert process.wait(30) == (-signal.SIGKILL if signal_ is signal.SIGKILL else 0)
        eventually(lambda: not any(map(is_alive, servers)), "the servers are gone")
    if signal_ is not signal.SIGKILL:
        assert list(home.glob("dropgate-*")) == []


@pytest.mark.server
def test_a_second_terminal_sources_one_file_that_is_gone_when_they_stop(home: Path) -> None:
    kept = home / "env"
    with up(home, "--only", "redis", "--env", str(kept)) as process:
        eventually(lambda: kept.exists() and kept.read_text(), "the settings are kept")
        sourced = ["bash", "-c", f". {kept}; echo $DROPGATE_REDIS_URL"]
        url = subprocess.run(sourced, capture_output=True, text=True, check=True).stdout.strip()
        assert answers(url)
        assert kept.stat().st_mode & 0o777 == 0o600
        with up(home, "--only", "redis", "--env", str(kept)) as second:
            assert second.wait(30) == 1, "a second set would take the file away from the first"
        assert url in kept.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not kept.exists()


def test_a_server_that_ends_meanwhile_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = ServerProcess("short-lived", [sys.executable, "-c", ""], tmp_path)
    process.launch()
    ended = Ended([process])
    eventually(lambda: not process.running, "it has ended")
    ended.look()
    ended.look()
    said = capsys.readouterr().err
    assert said.count("short-lived has ended, the others run on.") == 1
    assert said.endswith(f"Its last words: {process.log}\n")
