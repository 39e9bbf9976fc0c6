"""`/readyz` says exactly what is missing; nothing is accepted meanwhile, and Redis stays as it was (F24, F45).

On a real Redis 7, MariaDB and RocketMQ. Each process here is the API alone, over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.bootstrap import create_topics, migrate
from service.core.topics import Topics
from service.ports.messaging import TopicType
from service.settings import Settings
from tests.fixtures.acl import PASSWORD, USER, least_user
from tests.fixtures.api_process import Api, api, open_sale
from tests.fixtures.broker_way import bend, url_of
from tests.fixtures.processes import command
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.stage_tools import until
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.faults]

REMEDY = "look at its server and the network to it"
NOT_REGISTERED = "broker: this process is not registered for check-backs yet (…); it tries every second"
STALE = "sql: the sale rows could not be read for over 2 s; look at the database"
EVICTS = (
    "redis: Redis evicts keys when memory is full (maxmemory-policy allkeys-lru), and stock with them: "
    "set maxmemory-policy noeviction"
)
FORGETS = (
    "redis: Redis keeps nothing on disk, so that each restart costs a rebuild: "
    "set appendonly yes and appendfsync everysec"
)


@dataclass
class Shop:
    """A sale that is open on these servers, each behind a proxy; with the embedded broker, unless a test has another.

    One for all tests: each mends what it breaks."""

    settings: Settings
    redis: Redis
    redis_way: TcpProxy
    sql_way: TcpProxy
    mariadb: MariaDB

    async def redis_call(self, *words: str) -> object:
        return await asyncio.to_thread(self.redis.call, *words)

    async def sql(self, statement: str) -> object:
        name = self.settings.database_url.rpartition("/")[2]
        return await asyncio.to_thread(self.mariadb.execute, statement.format(database=name))

    async def keyspace(self) -> dict[bytes, bytes]:
        def look() -> dict[bytes, bytes]:
            return {key: self.redis.call("DUMP", key) for key in self.redis.call("KEYS", "*")}

        return await asyncio.to_thread(look)


@pytest.fixture(scope="module")
def rocketmq(rocketmq_quick: RocketMQ) -> RocketMQ:
    """Any will do, so the one that others use too."""
    return rocketmq_quick


@pytest.fixture(scope="module")
def shop(mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    redis = Redis()
    with ExitStack() as stack:
        stack.callback(redis.stop)
        redis.start()
        redis.call(*least_user())
        redis_way, sql_way = TcpProxy(f"127.0.0.1:{redis.port}"), TcpProxy(mariadb.address)
        for way in (redis_way, sql_way):
            stack.callback(way.close)
        database = mariadb.new_database().rpartition("/")[2]
        settings = Settings(
            home=tmp_path_factory.mktemp("shop"),
            port=0,
            redis_url=f"redis://{USER}:{PASSWORD}@{redis_way.address}/0",
            database_url=mariadb.url_of(database, sql_way.address),
            sql_timeout_s=2.0,
            sql_connect_timeout_s=1.0,
            topic_prefix=f"t{uuid4().hex[:12]}",
        )
        asyncio.run(_open(settings))
        yield Shop(settings, redis, redis_way, sql_way, mariadb)


async def _open(settings: Settings) -> None:
    await migrate(settings)
    await create_topics(settings)
    await open_sale(settings, stock=100_000)


@dataclass(frozen=True)
class Fault:
    """`says`: the sentences, in their order; of those with dots the begin and the end."""

    breaks: Callable[[Shop], Awaitable[object]]
    mends: Callable[[Shop], Awaitable[object]]
    says: tuple[str, ...]


def _redis_config(name: str, wrong: str, right: str, *says: str) -> Fault:
    return Fault(
        lambda shop: shop.redis_call("CONFIG", "SET", name, wrong),
        lambda shop: shop.redis_call("CONFIG", "SET", name, right),
        says,
    )


def _acl(*changes: str) -> Callable[[Shop], Awaitable[object]]:
    return lambda shop: shop.redis_call("ACL", "SETUSER", USER, *changes)


def _way(name: str, fault: str, *says: str) -> Fault:
    """`refuse` or `swallow`, of the way to a server."""

    async def breaks(shop: Shop) -> None:
        getattr(getattr(shop, name), fault)()

    async def mends(shop: Shop) -> None:
        getattr(shop, name).heal()

    return Fault(breaks, mends, says)


FAULTS = {
    "Redis evicts": _redis_config("maxmemory-policy", "allkeys-lru", "noeviction", EVICTS),
    "Redis is full": _redis_config(
        "maxmemory",
        "1",
        "0",
        "redis: Redis is full (… of 1 bytes) and takes no writes: "
        "raise maxmemory, or remove what is not Dropgate's (its keys begin with dg:)",
    ),
    "Redis misses a permission": Fault(
        _acl("-zadd", "-unlink"),
        _acl("+zadd", "+unlink"),
        (
            "redis: Redis does not allow UNLINK, ZADD on keys dg:* to this user: "
            "give it the permissions of docs/operations.md",
        ),
    ),
    "Redis allows other keys": Fault(
        _acl("resetkeys", "~other:*"),
        _acl("resetkeys", "~dg:*"),
        ("redis: its user may not do this (…); give it the permissions that docs/operations.md lists (ACL SETUSER)",),
    ),
    "Redis has another password": Fault(
        lambda shop: _new_password(shop, "another"),
        lambda shop: _new_password(shop, PASSWORD),
        ("redis: it refuses the user or the password (…); correct them in DROPGATE_REDIS_URL",),
    ),
    "Redis is away": _way(
        "redis_way", "refuse", f"redis: …; {REMEDY}, and write rediss in DROPGATE_REDIS_URL if this port speaks TLS"
    ),
    "Redis is silent": _way("redis_way", "swallow", f"redis: no connection within 1 s; {REMEDY}"),
    "SQL has no tables": Fault(
        lambda shop: shop.sql("RENAME TABLE {database}.alembic_version TO {database}.hidden"),
        lambda shop: shop.sql("RENAME TABLE {database}.hidden TO {database}.alembic_version"),
        ("sql: The database has no Dropgate tables: run `dropgate migrate`.",),
    ),
    "SQL is not migrated": Fault(
        lambda shop: shop.sql("UPDATE {database}.alembic_version SET version_num = '0000'"),
        lambda shop: shop.sql("UPDATE {database}.alembic_version SET version_num = '0001'"),
        ("sql: The database is at schema 0000, this release needs 0001: run `dropgate migrate`.",),
    ),
    "SQL is another application's": Fault(
        lambda shop: shop.sql("UPDATE {database}.alembic_version SET version_num = 'ae1027a6acf0'"),
        lambda shop: shop.sql("UPDATE {database}.alembic_version SET version_num = '0001'"),
        (
            "sql: the database holds another application's schema (alembic_version: ae1027a6acf0): "
            "give Dropgate a database of its own.",
        ),
    ),
    "SQL is away": _way("sql_way", "refuse", f"sql: …; {REMEDY}", STALE),
    "SQL is silent": _way("sql_way", "swallow", f"sql: …; {REMEDY}", STALE),
}


async def _new_password(shop: Shop, password: str) -> None:
    await shop.redis_call("ACL", "SETUSER", USER, "resetpass", f">{password}")
    shop.redis_way.reset()


@pytest.mark.parametrize("name", FAULTS)
async def test_what_goes_wrong_is_said_and_nothing_is_accepted_until_it_is_mended(shop: Shop, name: str) -> None:
    fault = FAULTS[name]
    async with api(shop.settings) as its:
        await its.becomes_ready()
        assert (await its.reserve()).status_code == 202
        before = await shop.keyspace()
        await fault.breaks(shop)
        try:
            await its.says(*fault.says)
            await _accepts_nothing(its)
            assert await shop.keyspace() == before
        finally:
            await fault.mends(shop)
        await _sells_again(its)


async def _accepts_nothing(its: Api) -> None:
    answers = await asyncio.gather(*[its.reserve() for _ in range(20)])
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["code"] for answer in answers} <= {"unavailable", "outcome_unknown"}
    assert all(answer.headers["Retry-After"] for answer in answers)
    assert not [answer.text for answer in answers if PASSWORD in answer.text or "ACL" in answer.text]


async def _sells_again(its: Api) -> None:
    """By itself, with whoever comes next once it is ready."""
    await its.becomes_ready()
    assert (await its.reserve()).status_code == 202


async def test_a_process_that_starts_wrong_says_all_of_it_and_has_accepted_nothing_before(shop: Shop) -> None:
    """From its first request on: what it has not seen in order yet is not."""
    await shop.redis_call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await shop.redis_call("CONFIG", "SET", "appendonly", "no")
    await shop.redis_call("ACL", "SETUSER", USER, "+config|get")
    before = await shop.keyspace()
    async with api(shop.settings) as its:
        await _accepts_nothing(its)
        await its.says(EVICTS, FORGETS)
        await _accepts_nothing(its)
        assert await shop.keyspace() == before
        await shop.redis_call("CONFIG", "SET", "appendonly", "yes")
        await its.says(EVICTS)
        await shop.redis_call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await _sells_again(its)
    await shop.redis_call("ACL", "SETUSER", USER, "-config")


async def test_what_may_not_be_seen_is_advice_and_stops_no_sale(shop: Shop) -> None:
    """A hosted Redis has no append-only file that INFO tells of, and no CONFIG: nobody could ever mend that."""
    await shop.redis_call("CONFIG", "SET", "appendonly", "no")
    try:
        async with api(shop.settings) as its:
            await its.becomes_ready()
            (advice,) = await its.advice()
            assert advice.startswith("redis: Redis has no append-only file, and CONFIG is not allowed here"), advice
            assert (await its.reserve()).status_code == 202
            await shop.redis_call("CONFIG", "SET", "appendonly", "yes")
            assert await its.advice() == []
    finally:
        await shop.redis_call("CONFIG", "SET", "appendonly", "yes")


async def test_a_wrong_setting_is_noticed_though_nobody_asks(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate does not depend on a load balancer that probes."""
    monkeypatch.setattr("service.core.readiness.CALM_S", 0.5)
    async with api(shop.settings) as its:
        await its.becomes_ready()
        await shop.redis_call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

        async def is_refused() -> bool:
            return (await its.reserve()).status_code == 503

        try:
            await until(is_refused, "the gate is shut")
            before = await shop.keyspace()
            await _accepts_nothing(its)
            assert await shop.keyspace() == before
        finally:
            await shop.redis_call("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_a_database_that_was_never_migrated_ends_the_start_with_the_remedy(mariadb: MariaDB, tmp_path: Path) -> None:
    ended = command(tmp_path, "serve", settings={"DROPGATE_DATABASE_URL": mariadb.new_database()})
    assert ended.returncode == 1
    assert "The database has no Dropgate tables: run `dropgate migrate`." in ended.stderr


# --- the broker -------------------------------------------------------------------------------------------------------


class Broker:
    """RocketMQ under a prefix of the test's own, with nothing in it yet."""

    def __init__(self, rocketmq: RocketMQ, shop: Shop) -> None:
        self.rocketmq = rocketmq
        self.settings = shop.settings.model_copy(
            update={
                "broker_url": rocketmq.url,
                "rocketmq_nameserver": rocketmq.name_server,
                "topic_prefix": f"t{uuid4().hex[:12]}",
            }
        )
        self.topics = Topics.named(self.settings.topic_prefix)

    async def make(self, *, order: TopicType = TopicType.TRANSACTION) -> None:
        """Topics without their groups."""
        async with self.admin() as admin:
            for topic in self.topics.all():
                await admin.create_topic(topic.name, order if topic is self.topics.order else topic.type, queues=4)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[BrokerAdmin]:
        client = RemotingClient(RemotingOptions(timeout_s=5.0))
        try:
            yield BrokerAdmin(client, self.rocketmq.broker)
        finally:
            await client.close()

    def missing(self, name: str) -> str:
        return f"broker: topic {name} is missing at broker {self.rocketmq.broker}: `dropgate topics create` makes it"

    def no_group(self, name: str, group: str | None) -> str:
        at = f"at broker {self.rocketmq.broker}"
        return f"broker: topic {name} has no group {group} {at}: `dropgate topics create` makes it"


@pytest.fixture
def broker(rocketmq: RocketMQ, shop: Shop) -> Broker:
    return Broker(rocketmq, shop)


async def test_topics_that_are_missing_are_named_and_waited_for(shop: Shop, broker: Broker) -> None:
    """F45 (c): the process comes up, says which, and registers by itself once they are there."""
    before = await shop.keyspace()
    async with api(broker.settings) as its:
        await _accepts_nothing(its)
        why = f"({broker.topics.order.name}: …)"
        await its.says(
            *[broker.missing(topic.name) for topic in broker.topics.all()], NOT_REGISTERED.replace("(…)", why)
        )
        await _accepts_nothing(its)
        assert await shop.keyspace() == before
        await create_topics(broker.settings)
        await _sells_again(its)


async def test_a_topic_of_another_type_is_named_with_both_types(shop: Shop, broker: Broker) -> None:
    await create_topics(broker.settings)
    order = broker.topics.order
    async with broker.admin() as admin:
        await admin.create_topic(order.name, TopicType.NORMAL, queues=4)
    before = await shop.keyspace()
    async with api(broker.settings) as its:
        at = f"at broker {broker.rocketmq.broker}"
        wrong = f"broker: topic {order.name} is of type NORMAL {at}, not TRANSACTION: use another topic prefix"
        await its.says(wrong, NOT_REGISTERED)
        await _accepts_nothing(its)
        assert await shop.keyspace() == before
        async with broker.admin() as admin:
            await admin.create_topic(order.name, TopicType.TRANSACTION, queues=4)
        await _sells_again(its)


async def test_a_missing_group_shuts_the_gate_though_the_process_is_registered(shop: Shop, broker: Broker) -> None:
    """Half messages could be sent, and nobody would ever read what is committed."""
    await broker.make()
    order, timeout = broker.topics.order, broker.topics.payment_timeout
    before = await shop.keyspace()
    async with api(broker.settings) as its:
        await its.says(broker.no_group(order.name, order.group), broker.no_group(timeout.name, timeout.group))
        await _accepts_nothing(its)
        assert await shop.keyspace() == before
        await create_topics(broker.settings)
        await _sells_again(its)


@pytest.mark.parametrize("fault", ["refuse", "swallow"])
async def test_a_broker_that_is_away_at_the_start_is_named_and_registered_at_once_it_is_there(
    shop: Shop, broker: Broker, make_proxy: Callable[[str], TcpProxy], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """F06, F45 (b, d): connections refused, and connections that are accepted and hear nothing."""
    await create_topics(broker.settings)
    proxy, names = make_proxy(broker.rocketmq.proxy), make_proxy(broker.rocketmq.name_server)
    bend(proxy, monkeypatch)
    changes = {"broker_url": url_of(proxy), "rocketmq_nameserver": names.address}
    for way in (proxy, names):
        getattr(way, fault)()
    before = await shop.keyspace()
    async with api(broker.settings.model_copy(update=changes)) as its:
        proxy_says = f"broker: the proxy at {proxy.address} …: look whether it runs, and at DROPGATE_BROKER_URL"
        await its.says(
            *([proxy_says] if fault == "refuse" else []),  # a first connection of a silent one is made
            f"broker: RocketMQ behind the name server {names.address} …; "
            "look whether it runs, and at DROPGATE_ROCKETMQ_NAMESERVER",
            NOT_REGISTERED.replace("(…)", f"({proxy.address}: …)"),
        )
        await _accepts_nothing(its)
        assert await shop.keyspace() == before
        for way in (proxy, names):
            way.heal()
        await _sells_again(its)


async def test_a_name_server_that_is_away_in_mid_sale_is_said_and_stops_no_sale(
    shop: Shop, broker: Broker, make_proxy: Callable[[str], TcpProxy]
) -> None:
    """Messages go on without it: what cannot be asked just now was in order when it was asked last."""
    await create_topics(broker.settings)
    names = make_proxy(broker.rocketmq.name_server)
    async with api(broker.settings.model_copy(update={"rocketmq_nameserver": names.address})) as its:
        await its.becomes_ready()
        names.refuse()
        await its.says(
            f"broker: RocketMQ behind the name server {names.address} …; "
            "look whether it runs, and at DROPGATE_ROCKETMQ_NAMESERVER"
        )
        assert (await its.reserve()).status_code == 202
        names.heal()
        await _sells_again(its)


async def test_a_process_that_starts_while_the_name_server_is_away_sells_once_it_is_registered(
    shop: Shop, broker: Broker, make_proxy: Callable[[str], TcpProxy]
) -> None:
    """A registered producer has seen its topic and the topic's type. It says still what it could not ask."""
    await create_topics(broker.settings)
    names = make_proxy(broker.rocketmq.name_server)
    names.refuse()
    async with api(broker.settings.model_copy(update={"rocketmq_nameserver": names.address})) as its:
        await its.says(
            f"broker: RocketMQ behind the name server {names.address} …; "
            "look whether it runs, and at DROPGATE_ROCKETMQ_NAMESERVER"
        )
        assert (await its.reserve()).status_code == 202
        names.heal()
        await _sells_again(its)
