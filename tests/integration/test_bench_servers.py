"""The bench finds the processes of its servers: real ones, by the addresses that settings have."""

from __future__ import annotations

from bench.stand.servers import servers_of
from service.settings import Settings
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import RocketMQ


async def test_all_servers_of_this_machine_are_found_the_broker_by_what_its_name_server_says(
    rocketmq: RocketMQ, redis7: Redis, mariadb: MariaDB
) -> None:
    settings = Settings(
        redis_url=redis7.url,
        database_url=mariadb.new_database(),
        broker_url=f"rocketmq5://{rocketmq.proxy}",
        rocketmq_nameserver=rocketmq.name_server,
    )
    found = await servers_of(settings, [settings.broker_url, f"rocketmq4://{rocketmq.name_server}"])
    assert [(name, process.name()) for name, process in found.processes.items()] == [
        ("Redis", "redis-server"),
        ("database", "mariadbd"),
        ("RocketMQ name server", "java"),
        ("RocketMQ broker and proxy", "java"),
    ]
    assert not found.left_out
