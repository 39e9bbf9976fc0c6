"""RocketMQ: a name server, and a broker with its proxy in one process (LOCAL mode). One of 4.9 has no proxy."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from service.adapters.rocketmq.packages import NATIVE, installed
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.routes import NameServers
from service.adapters.rocketmq.remoting.signing import Credentials
from service.domain.errors import BrokerUnavailable
from service.ports.messaging import TopicType
from tests.servers import install
from tests.servers.ports import free_ports
from tests.servers.process import ServerFailed, ServerProcess

READY_WITHIN_S = 120.0
"""15 s on an idle machine; the deadline is for a busy one."""
ORDERLY_WITHIN_S = 90.0
"""An orderly stop takes it 15 s and more: it waits for its parts one after the other."""
DISCARD_WITHIN_S = 1.0
"""Nothing is kept: it is asked to stop, and not waited for."""
TRIES = 3
"""A port may be taken between the look and the start."""
PROBE_TOPIC = "dropgate-ready"
LOGGING = "<configuration><root level='WARN'/></configuration>"
"""4.9 does not start without a file for each of its two programs."""
CLUSTER, BROKER = "dropgate", "broker-a"

HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The preface and an empty SETTINGS frame."""
HTTP2_SETTINGS = 4

JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts in half the time; a bench asks for the full compiler
    "-XX:-UsePerfData",
    "-XX:MaxDirectMemorySize=512m",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",  # a developer's full disk is not the test's matter
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
JAVA_9 = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED")


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """The broker's settings, under our names. What stands here are RocketMQ 5.4.0's own defaults (seen)."""

    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    transaction_check_max: int = 15
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    timer_wheel: bool = True
    recall: bool = False
    heap_mb: int = 512
    release: install.Release = install.ROCKETMQ_5
    """4.9 takes no notice of what only 5 knows: timer wheel, recall, ends in bundles, the address to listen on."""
    full_compiler: bool = False
    more: Mapping[str, str] = field(default_factory=dict)
    """Broker properties as RocketMQ names them; they win."""
    more_proxy: Mapping[str, object] = field(default_factory=dict)
    administrator: Credentials | None = None
    """Where it demands a name (access_control.py)."""

    def properties(self) -> dict[str, str]:
        return {
            "transactionTimeOut": str(self.transaction_timeout_ms),
            "transactionCheckInterval": str(self.transaction_check_interval_ms),
            "transactionCheckMax": str(self.transaction_check_max),
            "messageDelayLevel": self.message_delay_level,
            "timerWheelEnable": _yes(self.timer_wheel),
            "recallMessageEnable": _yes(self.recall),
            **self.more,
        }


DEFAULT = BrokerOptions()
PROMPT_ENDS = {"transactionOpBatchInterval": "100"}
"""The broker notes ends in bundles every 3 s, half of its own 6 s: with a shorter time-out it asks about what has
ended."""
BRIEF_HOLDS = {"minInvisibleTimeMillsForRecv": 1_000}
"""RocketMQ's own least is 10 s: every story of a message that comes again would take that long."""
LEVELS_WITH_15M = DEFAULT.message_delay_level.replace("10m", "10m 15m")
"""The native client delays by level, and a payment window of ours is one."""
SERVED = replace(DEFAULT, message_delay_level=LEVELS_WITH_15M, full_compiler=True)
"""For people and for the bench, not for tests: it lives longer than a minute, so that its JVM may take the time."""
SHORT = BrokerOptions(
    message_delay_level=LEVELS_WITH_15M,
    transaction_timeout_ms=2_000,
    transaction_check_interval_ms=2_000,
    transaction_check_max=2,
    more=PROMPT_ENDS,
    more_proxy=BRIEF_HOLDS,
)
"""Check-backs within seconds, and soon no more of them."""
QUICK = BrokerOptions(
    message_delay_level=LEVELS_WITH_15M,
    transaction_timeout_ms=1_000,
    transaction_check_interval_ms=1_000,
    transaction_check_max=500,
    more=PROMPT_ENDS,
    more_proxy=BRIEF_HOLDS,
)
"""Check-backs each second, and messages that come again within one."""


class RocketMQ:
    """`start` returns when it can be used. The addresses stay the same over restarts."""

    def __init__(self, options: BrokerOptions = DEFAULT) -> None:
        self.options = options
        self._jars, self._program = install.jars(options.release), install.program("java")
        self.folder = Path(tempfile.mkdtemp(prefix="dropgate-rocketmq-"))
        self.ready_s = 0.0
        """How long the last start took."""
        self._write_logging()
        self._choose_ports()

    @property
    def has_proxy(self) -> bool:
        return self.options.release == install.ROCKETMQ_5

    def _choose_ports(self) -> None:
        self.name_server = f"127.0.0.1:{free_ports()}"
        self.broker = f"127.0.0.1:{free_ports((-2, 0, 1))}"
        self.proxy = f"127.0.0.1:{free_ports()}"
        self.proxy_remoting = f"127.0.0.1:{free_ports()}"
        self.name_server_process = self._java("name-server", self._name_server_arguments(), heap_mb=64)
        self.broker_process = self._java("broker", self._broker_arguments(), heap_mb=self.options.heap_mb)

    @property
    def url(self) -> str:
        """As DROPGATE_BROKER_URL wants it, for the client that this environment has."""
        return f"rocketmq4://{self.name_server}" if installed(NATIVE.name) else f"rocketmq5://{self.proxy}"

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for rest in reversed(range(TRIES)):
            try:
                self._start()
            except ServerFailed as failure:
                self.kill()
                if not rest or "Address already in use" not in str(failure):
                    raise
                self._choose_ports()
            except BaseException:
                self.kill()
                raise
            else:
                return

    def _start(self) -> None:
        began = time.monotonic()
        self.name_server_process.launch()
        port = _port(self.name_server)
        self.name_server_process.wait_until(lambda: _accepts(port), "it accepts a connection", READY_WITHIN_S)
        self.start_broker()
        self.ready_s = time.monotonic() - began

    def start_broker(self) -> None:
        """Also after `broker_process.kill()`."""
        began = time.monotonic()
        self.broker_process.launch()
        self.broker_process.wait_until(self._is_ready, "there is a route to the broker", READY_WITHIN_S)
        self.ready_s = time.monotonic() - began

    def restart_broker(self) -> None:
        """Orderly: what it has accepted is on its disk. 15 s down, 15 s up; a kill spares the first 15."""
        self.broker_process.stop(ORDERLY_WITHIN_S)
        self.start_broker()

    def stop(self) -> None:
        """For good: the folder goes too. The broker first, as it would take its leave of the name server."""
        try:
            self.broker_process.stop(DISCARD_WITHIN_S)
        finally:
            self.name_server_process.stop(DISCARD_WITHIN_S)
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        self.broker_process.kill()
        self.name_server_process.kill()

    # --- readiness ----------------------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        """In order of cost; what asks before the ports are open would only find them closed."""
        return _accepts(_port(self.broker)) and self._proxy_is_ready() and _answer_of(self._routes)

    def _proxy_is_ready(self) -> bool:
        """Or there is none."""
        if not self.has_proxy:
            return True
        return all(_accepts(_port(it)) for it in (self.proxy, self.proxy_remoting)) and _speaks_http2(_port(self.proxy))

    async def _routes(self) -> bool:
        """A topic can be made, and the name server and the proxy, if any, know where it is."""
        client = RemotingClient(RemotingOptions(timeout_s=5.0, credentials=self.options.administrator))
        try:
            await BrokerAdmin(client, self.broker).create_topic(PROBE_TOPIC, TopicType.NORMAL, queues=1)
            for address in (self.name_server, *([self.proxy_remoting] if self.has_proxy else [])):
                await NameServers(client, address).route(PROBE_TOPIC)
        except BrokerUnavailable:
            return False
        else:
            return True
        finally:
            await client.close()

    # --- how it is started --------------------------------------------------------------------------------------------

    def _java(self, name: str, arguments: list[str], heap_mb: int) -> ServerProcess:
        jvm = [it for it in JVM if not (self.options.full_compiler and "TieredStop" in it)]
        heap = [f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", f"-Duser.home={self.folder}"]
        classpath = ["-cp", f"{self._jars}/*"]
        command = [self._program, *jvm, *JAVA_9, *heap, *classpath, *arguments]
        return ServerProcess(name, command, self.folder, {"ROCKETMQ_HOME": str(self.folder)})

    def _name_server_arguments(self) -> list[str]:
        settings = {"listenPort": str(_port(self.name_server)), "bindAddress": "127.0.0.1"}
        path = self._write("name-server.conf", settings)
        return ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(path)]

    def _broker_arguments(self) -> list[str]:
        broker = self._write("broker.conf", self._broker_settings() | self.options.properties())
        if not self.has_proxy:
            return ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(broker)]
        proxy = self.folder / "proxy.json"
        proxy.write_text(json.dumps(self._proxy_settings() | dict(self.options.more_proxy)))
        return ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(proxy), "-bc", str(broker), "-pm", "local"]

    def _broker_settings(self) -> dict[str, str]:
        store = self.folder / "store"
        return {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(_port(self.broker)),
            "bindAddress": "127.0.0.1",
            "haListenPort": str(_port(self.broker) + 1),
            "namesrvAddr": self.name_server,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mappedFileSizeCommitLog": str(128 * 1024 * 1024),
            "mappedFileSizeConsumeQueue": str(300_000),
            "maxHashSlotNum": "100000",
            "maxIndexNum": "400000",
            "autoCreateTopicEnable": "false",
            "diskMaxUsedSpaceRatio": "95",
            # What an idle broker does by default takes a fifth of a core: each second it compares its wheel of delayed
            # messages (38 MB) with the file, byte by byte, and it spins for 3 s before it first writes its figures.
            "timerFlushIntervalMs": "10000",
            "transactionMetricFlushInterval": "500",
        }

    def _proxy_settings(self) -> dict[str, object]:
        return {
            "rocketMQClusterName": CLUSTER,
            "proxyMode": "LOCAL",
            "grpcServerPort": _port(self.proxy),
            "remotingListenPort": _port(self.proxy_remoting),
            "namesrvAddr": self.name_server,
            "localServeAddr": "127.0.0.1",
        }

    def _write_logging(self) -> None:
        folder = self.folder / "conf"
        folder.mkdir()
        for program in ("namesrv", "broker"):
            (folder / f"logback_{program}.xml").write_text(LOGGING)

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


def _answer_of(look: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
    """On a thread of its own: the caller may have a loop that runs."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(look())).result()


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0):
            return True
    except OSError:
        return False


def _speaks_http2(port: int) -> bool:
    """The gRPC side answers, it does not only listen."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection:
            connection.sendall(HTTP2_HELLO)
            frame_head = connection.recv(9)
    except OSError:
        return False
    return len(frame_head) > 3 and frame_head[3] == HTTP2_SETTINGS
