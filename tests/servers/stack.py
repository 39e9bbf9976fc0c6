"""The servers together, in one life."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import install
from tests.servers.mariadb import MariaDB
from tests.servers.process import ServerProcess
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import DEFAULT, BrokerOptions, RocketMQ

NAMES = ("redis", "mariadb", "rocketmq")
LOOK_S = 0.2

Server = Redis | MariaDB | RocketMQ


@dataclass(frozen=True, kw_only=True)
class Place:
    """What runs where."""

    server: str
    version: str
    address: str
    log: Path


@dataclass(frozen=True, kw_only=True)
class Stack:
    """None: it was not asked for."""

    redis: Redis | None
    mariadb: MariaDB | None
    rocketmq: RocketMQ | None

    def servers(self) -> Mapping[str, Server]:
        """Those that were asked for, by name."""
        named: dict[str, Server | None] = {"redis": self.redis, "mariadb": self.mariadb, "rocketmq": self.rocketmq}
        return {name: server for name, server in named.items() if server is not None}

    def settings(self) -> Mapping[str, str]:
        """As environment variables."""
        settings = {}
        if self.redis is not None:
            settings["DROPGATE_REDIS_URL"] = self.redis.url
        if self.mariadb is not None:
            settings["DROPGATE_DATABASE_URL"] = self.mariadb.url
        if self.rocketmq is not None:
            settings["DROPGATE_BROKER_URL"] = self.rocketmq.url
            settings["DROPGATE_ROCKETMQ_NAMESERVER"] = self.rocketmq.name_server
        return settings

    def processes(self) -> Sequence[ServerProcess]:
        single = [server.process for server in (self.redis, self.mariadb) if server is not None]
        if self.rocketmq is None:
            return single
        return [*single, self.rocketmq.name_server_process, self.rocketmq.broker_process]

    def places(self) -> Sequence[Place]:
        """Each address. The servers are asked for their versions: they must run."""
        return [*self._redis_place(), *self._mariadb_place(), *self._rocketmq_places()]

    def _redis_place(self) -> Iterator[Place]:
        if self.redis is not None:
            version = str(self.redis.call("INFO", "server")["redis_version"])
            address, log = f"127.0.0.1:{self.redis.port}", self.redis.process.log
            yield Place(server="redis", version=version, address=address, log=log)

    def _mariadb_place(self) -> Iterator[Place]:
        if self.mariadb is not None:
            (row,) = self.mariadb.execute("SELECT VERSION() AS version")
            version = str(row["version"]).partition("-")[0]
            yield Place(server="mariadb", version=version, address=self.mariadb.address, log=self.mariadb.process.log)

    def _rocketmq_places(self) -> Iterator[Place]:
        if self.rocketmq is not None:
            it, version = self.rocketmq, install.version()
            logs = it.broker_process.log, it.broker_process.log, it.name_server_process.log
            parts = {"proxy": it.proxy, "broker": it.broker, "name server": it.name_server}
            for (part, address), log in zip(parts.items(), logs, strict=True):
                yield Place(server=f"rocketmq {part}", version=version, address=address, log=log)


class Telling:
    """What is heard of a start; this one says nothing."""

    def ready(self, name: str, after_s: float) -> None: ...

    def waiting(self, names: Collection[str]) -> None: ...


@contextmanager
def up(
    names: Collection[str] = NAMES, options: BrokerOptions = DEFAULT, telling: Telling | None = None
) -> Iterator[Stack]:
    """Running and ready; stopped in the other order, whatever happens."""
    with ExitStack() as stack:
        servers = Stack(
            redis=Redis() if "redis" in names else None,
            mariadb=MariaDB(*MariaDB.roomy) if "mariadb" in names else None,
            rocketmq=RocketMQ(options) if "rocketmq" in names else None,
        )
        for server in servers.servers().values():
            stack.callback(server.stop)
        _start(servers.servers(), telling or Telling())
        yield servers


def _start(servers: Mapping[str, Server], telling: Telling) -> None:
    """Side by side: the others are ready long before the broker is."""
    with ThreadPoolExecutor(max_workers=len(servers)) as threads:
        starting = {threads.submit(server.start): name for name, server in servers.items()}
        try:
            while starting:
                done, _ = wait(starting, LOOK_S, FIRST_COMPLETED)
                for future in done:
                    future.result()
                    name = starting.pop(future)
                    telling.ready(name, servers[name].ready_s)
                telling.waiting(starting.values())
        except BaseException:
            for server in servers.values():
                server.kill()  # its thread finds it ended, and ends
            raise
