"""All three at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import DEFAULT, BrokerOptions, RocketMQ


@dataclass(frozen=True, kw_only=True)
class Stack:
    redis: Redis
    mariadb: MariaDB
    rocketmq: RocketMQ

    def settings(self) -> Mapping[str, str]:
        """As environment variables."""
        return {
            "DROPGATE_REDIS_URL": self.redis.url,
            "DROPGATE_DATABASE_URL": self.mariadb.url,
            "DROPGATE_BROKER_URL": self.rocketmq.url,
        }


@contextmanager
def up(options: BrokerOptions = DEFAULT) -> Iterator[Stack]:
    """Running and ready; stopped in the other order, whatever happens."""
    with ExitStack() as stack:
        servers = Stack(redis=Redis(), mariadb=MariaDB(), rocketmq=RocketMQ(options))
        for server in (servers.redis, servers.mariadb, servers.rocketmq):
            stack.callback(server.stop)
        for server in (servers.redis, servers.mariadb, servers.rocketmq):
            server.start()
        yield servers
