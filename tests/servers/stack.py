"""The servers together, in one life."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import DEFAULT, BrokerOptions, RocketMQ

NAMES = ("redis", "mariadb", "rocketmq")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """None: it was not asked for."""

    redis: Redis | None
    mariadb: MariaDB | None
    rocketmq: RocketMQ | None

    def settings(self) -> Mapping[str, str]:
        """As environment variables."""
        servers = {
            "DROPGATE_REDIS_URL": self.redis,
            "DROPGATE_DATABASE_URL": self.mariadb,
            "DROPGATE_BROKER_URL": self.rocketmq,
        }
        return {name: server.url for name, server in servers.items() if server is not None}


@contextmanager
def up(names: Collection[str] = NAMES, options: BrokerOptions = DEFAULT) -> Iterator[Stack]:
    """Running and ready; stopped in the other order, whatever happens."""
    with ExitStack() as stack:
        servers = Stack(
            redis=Redis() if "redis" in names else None,
            mariadb=MariaDB() if "mariadb" in names else None,
            rocketmq=RocketMQ(options) if "rocketmq" in names else None,
        )
        wanted = [it for it in (servers.redis, servers.mariadb, servers.rocketmq) if it is not None]
        for server in wanted:
            stack.callback(server.stop)
        for server in wanted:
            server.start()
        yield servers
