"""What of the gRPC transport needs no broker: its package, its process, its settings, the shapes of its requests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.adapters.rocketmq import packages
from service.adapters.rocketmq.grpc import sdk, wire
from service.adapters.rocketmq.grpc.link import Link
from service.adapters.rocketmq.grpc.producer import _pick
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.transport import GrpcTransport
from service.adapters.rocketmq.outgoing import lanes
from service.adapters.system_clock import SystemClock
from service.bootstrap.adapters import open_transport
from service.domain.errors import BrokerRefused, BrokerUnavailable, SettingRefused
from service.ports.messaging import OutgoingMessage, Topic, TopicType
from service.settings import Settings
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.stage_tools import until

ROOT = Path(__file__).resolve().parents[3]
NOBODY = GrpcSettings(proxy="127.0.0.1:9", name_servers="127.0.0.1:9", start_timeout_s=2.0, admin_timeout_s=1.0)


def run(program: str, home: Path) -> str:
    """In a process of its own, where warnings are errors; what it printed."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


# --- the package ------------------------------------------------------------------------------------------------------


def test_the_package_is_imported_without_a_warning_and_leaves_nothing_at_home(tmp_path: Path) -> None:
    program = """
        import logging
        from service.adapters.rocketmq.grpc import transport
        from rocketmq.v5.log import logger
        logger.info("unsaid")
        logger.warn("unsaid, and no warning of its own")
        print(logging.getLogger().handlers, logging.getLogger("rocketmq-python-client").handlers)
    """
    assert run(program, tmp_path) == "[] []\n"
    assert list(tmp_path.iterdir()) == []


BOTH = {packages.GRPC.name, packages.NATIVE.name}


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        (
            BOTH,
            "takes the place of rocketmq-python-client: `pip uninstall rocketmq-client-python`",
        ),
        ({packages.NATIVE.name}, "takes the place of rocketmq-python-client: `pip uninstall rocketmq-client-python`"),
        (set(), "which is not installed: `pip install 'dropgate[rocketmq5]'`"),
    ],
)
def test_a_package_that_is_missing_or_displaced_is_said_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], sentence: str
) -> None:
    monkeypatch.setattr(packages, "installed", installed.__contains__)
    with pytest.raises(SettingRefused) as refused:
        packages.require(packages.GRPC, not_with=packages.NATIVE)
    assert refused.value.setting == "broker_url"
    assert sentence in refused.value.problem


# --- the process ------------------------------------------------------------------------------------------------------


def test_a_transport_that_was_started_before_a_fork_refuses_to_work_after_it(tmp_path: Path) -> None:
    """F49: a preloaded one, in a worker; what its parent made with it; one that the worker makes itself after the
    client ran in its parent."""
    program = """
        import asyncio, os, warnings
        from service.adapters.rocketmq.grpc.producer import GrpcProducer
        from service.adapters.rocketmq.grpc.sdk import RpcClient
        from service.adapters.rocketmq.grpc.session import Session
        from service.adapters.rocketmq.grpc.settings import GrpcSettings
        from service.adapters.rocketmq.grpc.transport import GrpcTransport
        from service.domain.errors import CannotStart
        from service.ports.messaging import OutgoingMessage
        settings = GrpcSettings(proxy="127.0.0.1:9", name_servers="127.0.0.1:9")
        preloaded = GrpcTransport(settings)
        asyncio.run(preloaded.start())
        producer = GrpcProducer("t", Session("s", None, settings, None), None, settings)
        RpcClient()
        warnings.simplefilter("ignore")  # from 3.12 on Python itself warns of a fork beside threads
        if os.fork():
            _, status = os.wait()
            raise SystemExit(os.waitstatus_to_exitcode(status))
        for ask in (
            lambda: preloaded.producer("t", None),
            lambda: preloaded.consumer("t", "g", invisible_s=60),
            lambda: producer.transact(OutgoingMessage(topic="t", key="k", body=b"b"), None),
            GrpcTransport(settings).start,
        ):
            try:
                asyncio.run(ask())
            except CannotStart as error:
                print(error.why, flush=True)
        os._exit(0)
    """
    said = run(program, tmp_path).splitlines()
    assert len(said) == 4
    assert all("after the fork" in sentence for sentence in said)


def test_a_process_ends_at_once_also_where_nobody_closed_its_transport(tmp_path: Path) -> None:
    program = """
        import asyncio, threading
        from service.adapters.rocketmq.grpc.settings import GrpcSettings
        from service.adapters.rocketmq.grpc.transport import GrpcTransport
        from service.domain.errors import BrokerUnavailable
        async def main():
            settings = GrpcSettings(proxy="127.0.0.1:9", name_servers="127.0.0.1:9", start_timeout_s=1.0)
            transport = GrpcTransport(settings)
            await transport.start()
            try:
                await transport.producer("t", None)
            except BrokerUnavailable:
                pass
            print([it.name for it in threading.enumerate() if not it.daemon])
        asyncio.run(main())
    """
    assert run(program, tmp_path).splitlines()[-1] == "['MainThread']"


# --- nobody is there --------------------------------------------------------------------------------------------------


async def test_what_is_away_is_said_in_a_sentence_each_within_the_time_of_readyz() -> None:
    transport = GrpcTransport(NOBODY)
    await transport.start()
    began = time.monotonic()
    (proxy,) = await transport.away()
    with pytest.raises(BrokerUnavailable, match="DROPGATE_ROCKETMQ_NAMESERVER"):
        await transport.missing([Topic(name="t", type=TopicType.NORMAL)])
    assert time.monotonic() - began < 2
    assert "DROPGATE_BROKER_URL" in proxy
    await transport.close()


async def test_a_silent_name_server_does_not_hold_up_readyz() -> None:
    silent = TcpProxy("127.0.0.1:9")
    silent.swallow()
    transport = GrpcTransport(GrpcSettings(proxy="127.0.0.1:9", name_servers=silent.address))
    await transport.start()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="DROPGATE_ROCKETMQ_NAMESERVER"):
        await transport.missing([])
    assert time.monotonic() - began < 2
    await transport.close()
    silent.close()


async def test_a_proxy_that_is_away_is_unavailable_at_once() -> None:
    transport = GrpcTransport(NOBODY)
    await transport.start()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        await transport.publisher().publish([OutgoingMessage(topic="t", key="k", body=b"b")])
    assert time.monotonic() - began < NOBODY.call_timeout_s
    assert not any(task.done() for task in transport.background())
    await transport.close()


async def test_clients_that_were_tried_in_vain_leave_no_threads_behind() -> None:
    """F47: in a long outage one is tried every few seconds. Its start may still be under way when it is given up."""
    silent = socket.create_server(("127.0.0.1", 0))  # its connections are made, and never accepted
    proxy = f"127.0.0.1:{silent.getsockname()[1]}"
    transport = GrpcTransport(
        GrpcSettings(proxy=proxy, name_servers="127.0.0.1:9", start_timeout_s=0.3, call_timeout_s=2.0)
    )
    await transport.start()
    for _ in range(5):
        with pytest.raises(BrokerUnavailable, match=r"no connection within 0\.3 s"):
            await transport.consumer("t", "g", invisible_s=60)
    await until(no_client_threads, "their threads have ended")
    await transport.close()
    silent.close()


async def no_client_threads() -> bool:
    """But the one that all clients share."""
    names = {it.name for it in threading.enumerate()}
    return not any("rocketmq5" in name or "_schedule_thread" in name or "_worker_" in name for name in names)


async def test_a_proxy_that_did_not_answer_is_passed_over_while_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that died without a word stays in the routes for minutes: every second half message would wait for it."""
    link, alive = Link(NOBODY, topics=["t"]), {"a", "b"}
    queues = [SimpleNamespace(endpoints=SimpleNamespace(facade=name)) for name in "ab"]

    async def probe(endpoints: SimpleNamespace) -> bool:
        return endpoints.facade in alive

    monkeypatch.setattr(link, "endpoints", lambda: [queue.endpoints for queue in queues])
    monkeypatch.setattr(link, "_probe", probe)

    async def asked() -> set[str]:
        await link.probe()
        return {_pick(link.answering(queues), None).facade for _ in range(4)}

    assert await asked() == {"a", "b"}
    alive.remove("a")
    assert await asked() == {"b"}
    alive.clear()
    assert await asked() == {"a", "b"}
    alive.add("a")
    assert await asked() == {"a"}
    await link.close()


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name_server", "setting"),
    [
        ("rocketmq5://broker:8081", None, "rocketmq_nameserver"),
        ("rocketmq5://broker", "ns:9876", "broker_url"),
        ("rocketmq5://[::1]:8081", "ns:9876", "broker_url"),
        ("rocketmq5://a:8081;b:8081", "ns:9876", "broker_url"),
        ("rocketmq6://broker:8081", "ns:9876", "broker_url"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_at_start(url: str, name_server: str | None, setting: str) -> None:
    with pytest.raises(SettingRefused) as refused:
        open_transport(Settings(broker_url=url, rocketmq_nameserver=name_server), SystemClock())
    assert refused.value.setting == setting


def test_several_proxies_are_numbers() -> None:
    settings = Settings(broker_url="rocketmq5://10.0.0.1:8081;10.0.0.2:8081", rocketmq_nameserver="ns:9876")
    assert isinstance(open_transport(settings, SystemClock()), GrpcTransport)


def test_a_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(GrpcSettings(proxy="h:1", name_servers="n:1", access_key="a", secret_key="s3cret"))


# --- requests and answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("due_ms", "sent_ms"), [(1_000, 1_000), (1_001, 2_000), (1_999, 2_000), (-5, 0)])
def test_a_delay_is_rounded_up_to_the_brokers_tick(due_ms: int, sent_ms: int) -> None:
    message = OutgoingMessage(topic="t", key="k", body=b"b", deliver_at_ms=due_ms)
    sent = wire.send(message, TopicType.DELAY, "t").messages[0].system_properties
    assert sdk.Misc.to_mills(sent.delivery_timestamp) == sent_ms


def test_a_half_message_carries_no_time_before_its_first_check() -> None:
    """F16."""
    sent = wire.send(OutgoingMessage(topic="t", key="k", body=b"b"), TopicType.TRANSACTION, "t").messages[0]
    assert not sent.system_properties.HasField("orphaned_transaction_recovery_duration")
    assert not sent.user_properties


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("TOPIC_NOT_FOUND", BrokerRefused),
        ("UNAUTHORIZED", BrokerRefused),
        ("MESSAGE_BODY_TOO_LARGE", BrokerRefused),
        ("UNRECOGNIZED_CLIENT_TYPE", BrokerUnavailable),
        ("TOO_MANY_REQUESTS", BrokerUnavailable),
        ("INTERNAL_SERVER_ERROR", BrokerUnavailable),
        ("SLAVE_PERSISTENCE_TIMEOUT", BrokerUnavailable),
    ],
)
def test_a_refusal_is_told_from_a_fault(code: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        wire.check_status(SimpleNamespace(code=wire.Code.Value(code), message="why\nstack trace"), "topic")
    assert type(raised.value) is error
    assert "stack trace" not in str(raised.value)


def test_a_body_that_lies_about_its_encoding_is_handed_on() -> None:
    message = sdk.definition.Message(body=b"no gzip")
    message.system_properties.body_encoding = sdk.definition.Encoding.GZIP
    assert wire.delivery(message, "t", None).body == b"no gzip"
    assert (wire.delivery(message, "t", None).key, wire.delivery(message, "t", None).attempt) == ("", 1)


def test_messages_of_one_fifo_group_share_a_lane_in_their_order() -> None:
    wanted = [("t", "a"), ("t", "b"), ("t", "a"), ("u", "a"), ("t", None), ("t", None)]
    messages = [
        OutgoingMessage(topic=topic, key=str(number), body=b"b", fifo_group=group)
        for number, (topic, group) in enumerate(wanted)
    ]
    found = [[message.key for message in lane] for lane in lanes(messages)]
    assert found == [["0", "2"], ["1"], ["3"], ["4"], ["5"]]
