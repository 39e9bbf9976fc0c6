"""The native client's package and library: what is missing is said at once, and what it calls back never raises."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.adapters.rocketmq import packages
from service.adapters.rocketmq.classic import library
from service.adapters.rocketmq.classic.crew import Crew
from service.adapters.rocketmq.classic.half import Half
from service.adapters.rocketmq.classic.link import Link
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.adapters.system_clock import SystemClock
from service.bootstrap.adapters import open_transport
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable, SettingRefused
from service.ports.messaging import Topic, TopicType
from service.settings import Settings
from tests.contract.messaging_stage import CheckBook

pytestmark = pytest.mark.rocketmq4

ROOT = Path(__file__).resolve().parents[3]
NO_MESSAGE = 0
"""The library reads nothing from it."""
NOBODY = ClassicSettings(name_servers="127.0.0.1:9", admin_timeout_s=1.0)


def run(program: str, *path: Path) -> str:
    """What it printed; it must end by itself, soon, and with 0."""
    paths = ":".join(map(str, (*path, ROOT)))
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- what is missing --------------------------------------------------------------------------------------------------


BOTH = {packages.NATIVE.name, packages.GRPC.name}


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        (
            BOTH,
            "takes the place of rocketmq-client-python: `pip uninstall rocketmq-python-",
        ),
        (set(), "which is not installed: `pip install 'dropgate[rocketmq4]'`"),
    ],
)
def test_a_package_that_is_missing_or_displaced_is_said_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], sentence: str
) -> None:
    monkeypatch.setattr(packages, "installed", installed.__contains__)
    with pytest.raises(SettingRefused) as refused:
        packages.require(packages.NATIVE, not_with=packages.GRPC)
    assert refused.value.setting == "broker_url"
    assert sentence in refused.value.problem


def test_a_library_that_is_missing_is_said_in_one_sentence_with_the_remedy(tmp_path: Path) -> None:
    """F48: not at the first sale."""
    package = Path(str(metadata.distribution(packages.NATIVE.name).locate_file("rocketmq")))
    shutil.copytree(package, tmp_path / "rocketmq", ignore=shutil.ignore_patterns("librocketmq*", "__pycache__"))
    program = """
        from service.bootstrap.adapters import open_transport
        from service.domain.errors import SettingRefused
        from service.settings import Settings
        try:
            open_transport(Settings(broker_url="rocketmq4://127.0.0.1:9876"), None)
        except SettingRefused as refused:
            print(refused.setting, refused.problem)
    """
    said = run(program, tmp_path)
    assert said.startswith("broker_url rocketmq4 needs librocketmq 2.0 or newer, which cannot be loaded")
    assert "install its official build" in said
    assert "`ldconfig`" in said


def test_the_other_transport_is_refused_in_this_environment() -> None:
    with pytest.raises(SettingRefused, match="pip uninstall rocketmq-client-python"):
        open_transport(Settings(broker_url="rocketmq5://h:1", rocketmq_nameserver="n:1"), SystemClock())


@pytest.mark.parametrize("name", ["rocketmq_tls", "rocketmq_admin_tls"])
def test_tls_is_refused_as_nothing_would_be_encrypted(name: str) -> None:
    with pytest.raises(SettingRefused, match="speaks no TLS"):
        open_transport(Settings.model_validate({"broker_url": "rocketmq4://n:1", name: True}), SystemClock())


def test_name_servers_come_from_the_url_and_credentials_from_the_settings() -> None:
    settings = Settings(
        broker_url="rocketmq4://n1:1;n2:2/", rocketmq_access_key="a", rocketmq_secret_key=SecretStr("s")
    )
    transport = open_transport(settings, SystemClock())
    assert isinstance(transport, ClassicTransport)
    used = transport._settings
    assert (used.name_servers, used.access_key, used.secret_key) == ("n1:1;n2:2", "a", "s")
    assert used.payment_window_s == settings.payment_window_s


async def test_a_broker_that_is_not_there_is_said_in_time_and_the_next_try_is_another() -> None:
    transport = ClassicTransport(NOBODY)
    await transport.start()
    topic = Topic(name="t", type=TopicType.NORMAL)
    for ask in (
        lambda: transport.producer("t", CheckBook()),
        lambda: transport.consumer("t", "g", invisible_s=60),
        lambda: transport.missing([topic]),
    ):
        with pytest.raises(BrokerUnavailable):
            await ask()
    (sentence,) = await transport.away()
    assert "127.0.0.1:9 cannot be reached" in sentence
    await transport.close()


# --- what the library calls -------------------------------------------------------------------------------------------


async def test_whatever_happens_in_a_callback_the_library_hears_unknown() -> None:
    """What leaves it as an exception would be taken for an answer, as a rule for COMMIT."""

    def fails(*_: object) -> None:
        raise ArithmeticError

    link = Link(NOBODY, "unit", fails)
    assert link._on_local(0, 0, 4711) == library.UNKNOWN
    assert link._on_check("t", NO_MESSAGE) == library.UNKNOWN


async def test_a_half_message_that_was_given_up_never_begins_and_one_that_has_begun_is_not_given_up() -> None:
    crew = Crew("unit", 1)
    given_up, begun = Half(1.0), Half(1.0)
    assert given_up.give_up()
    assert await crew.submit(given_up.begin) is Verdict.ROLLBACK
    assert not given_up.begun.done()
    begins = crew.submit(begun.begin)
    await begun.begun
    assert not begun.give_up()
    begun.end(Verdict.COMMIT)
    begun.end(Verdict.UNKNOWN)
    assert await begins is Verdict.COMMIT
    crew.dismiss()


async def test_a_decision_that_never_comes_lets_its_thread_go() -> None:
    crew = Crew("unit", 1)
    assert await crew.submit(Half(0.05).begin) is Verdict.UNKNOWN
    crew.dismiss()


# --- the process ------------------------------------------------------------------------------------------------------


def test_a_transport_that_was_started_before_a_fork_refuses_to_work_after_it() -> None:
    """F49."""
    program = """
        import asyncio, os, warnings
        from service.adapters.rocketmq.classic.settings import ClassicSettings
        from service.adapters.rocketmq.classic.transport import ClassicTransport
        from service.domain.errors import CannotStart
        from service.ports.messaging import OutgoingMessage
        preloaded = ClassicTransport(ClassicSettings(name_servers="127.0.0.1:9"))
        asyncio.run(preloaded.start())
        warnings.simplefilter("ignore")  # from 3.12 on Python itself warns of a fork beside threads
        if os.fork():
            _, status = os.wait()
            raise SystemExit(os.waitstatus_to_exitcode(status))
        for ask in (
            lambda: preloaded.producer("t", None),
            lambda: preloaded.consumer("t", "g", invisible_s=60),
            lambda: preloaded.publisher().publish([OutgoingMessage(topic="t", key="k", body=b"b")]),
        ):
            try:
                asyncio.run(ask())
            except CannotStart as error:
                print(error.why, flush=True)
        os._exit(0)
    """
    said = run(program).splitlines()
    assert len(said) == 3
    assert all("after the fork" in sentence for sentence in said)
