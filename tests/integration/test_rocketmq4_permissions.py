"""RocketMQ with access control, by the classic protocol: the permissions of docs/servers.md are enough."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.adapters.rocketmq.remoting.signing import Credentials
from service.core.topics import Topics
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import Dead, OutgoingMessage, RetryAfter
from tests.contract.messaging_stage import CheckBook, always, collect, eventually, keys
from tests.fixtures.processes import ROOT
from tests.servers import access_control
from tests.servers.rocketmq import SHORT, RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
OPTIONS = replace(
    SHORT,
    more={**SHORT.more, **access_control.BROKER, "autoCreateSubscriptionGroup": "false"},
    more_proxy={**SHORT.more_proxy, **access_control.PROXY},
    administrator=access_control.ADMIN,
)
SHOP = Credentials(access_key="shop", secret_key="shop-secret")
STRANGER = Credentials(access_key="stranger", secret_key="stranger-secret")
TOPICS = Topics.named("dropgate")
ORDER, GROUP = TOPICS.order.name, TOPICS.order.group or ""


def permissions_of_the_page() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8")
    table = page.partition("<!-- permissions -->\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([\w, ]+) \|", table, re.MULTILINE)
    return {resource: actions.split(", ") for resource, actions in rows}


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(OPTIONS)
        stack.callback(broker.stop)
        broker.start()
        asyncio.run(access_control.create_user(broker.broker, SHOP, permissions_of_the_page()))
        asyncio.run(access_control.create_user(broker.broker, STRANGER, {}))
        yield broker


def transport_of(broker: RocketMQ, user: Credentials) -> ClassicTransport:
    return ClassicTransport(
        ClassicSettings(name_servers=broker.name_server, access_key=user.access_key, secret_key=user.secret_key)
    )


@pytest.fixture
async def shop(broker: RocketMQ) -> AsyncIterator[ClassicTransport]:
    transport = transport_of(broker, SHOP)
    await transport.start()
    await transport.create_topics(TOPICS.all())
    yield transport
    await transport.close()


def message(key: str, topic: str = ORDER, fifo_group: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(topic=topic, key=key, body=b"{}", properties={}, fifo_group=fifo_group)


async def test_orders_check_backs_retries_and_events_pass_with_the_permissions_of_the_page(
    shop: ClassicTransport,
) -> None:
    assert await shop.missing(TOPICS.all()) == []
    producer = await shop.producer(ORDER, CheckBook({"doubt": Verdict.COMMIT}))
    consumer = await shop.consumer(ORDER, GROUP, invisible_s=60)
    await producer.transact(message("sold"), always(Verdict.COMMIT))
    await producer.transact(message("doubt"), always(Verdict.UNKNOWN))
    assert sorted(keys(await collect(consumer, 2, PATIENCE_S))) == ["doubt", "sold"]
    await shop.publisher().publish([message("paid", TOPICS.events.name, fifo_group="anna")])
    await producer.transact(message("again"), always(Verdict.COMMIT))
    (delivery,) = await collect(consumer, 1, PATIENCE_S, done=False)
    await consumer.settle(delivery, RetryAfter(delay_s=1.0, why="not yet"))
    (again,) = await collect(consumer, 1, PATIENCE_S)
    assert (again.key, again.attempt) == ("again", 2)
    assert await shop.away() == []


async def test_what_the_broker_put_aside_is_listed_resumed_and_forgotten_too(shop: ClassicTransport) -> None:
    checks = CheckBook()
    producer = await shop.producer(ORDER, checks)
    await producer.transact(message("nobody-knows"), always(Verdict.UNKNOWN))

    async def discarded() -> bool:
        return [it.key for it in await shop.discarded()] == ["nobody-knows"]

    await eventually(discarded, PATIENCE_S)
    (half,) = await shop.discarded()
    checks.answers[half.key] = Verdict.COMMIT
    await shop.resume_discarded(half.message_id)
    consumer = await shop.consumer(ORDER, GROUP, invisible_s=60)
    (delivery,) = await collect(consumer, 1, PATIENCE_S, done=False)
    await consumer.settle(delivery, Dead(why="nobody can read it"))

    async def dead() -> bool:
        return [it.key for it in await shop.dead_letters(GROUP)] == [half.key]

    await eventually(dead, PATIENCE_S)
    (letter,) = await shop.dead_letters(GROUP)
    await shop.forget_dead_letter(GROUP, letter.message_id)
    assert await shop.dead_letters(GROUP) == []


async def test_who_may_send_nothing_decides_nothing(shop: ClassicTransport, broker: RocketMQ) -> None:
    """The native client does not say why: whatever a broker answers, it has "no route"."""
    assert await shop.missing(TOPICS.all()) == []
    stranger, decided = transport_of(broker, STRANGER), list[str]()

    async def decide() -> Verdict:
        decided.append("decided")
        return Verdict.COMMIT

    await stranger.start()
    producer = await stranger.producer(ORDER, CheckBook())
    with pytest.raises(BrokerUnavailable):
        await producer.transact(message("stolen"), decide)
    with pytest.raises(BrokerUnavailable):
        await stranger.publisher().publish([message("paid", TOPICS.events.name, fifo_group="anna")])
    with pytest.raises(BrokerRefused, match="no permission to access Topic:dropgate"):
        await stranger.create_topics([replace(TOPICS.order, name="dropgate-another")])
    assert decided == []
    await stranger.close()


async def test_who_is_not_known_is_told(broker: RocketMQ) -> None:
    unknown = transport_of(broker, replace(SHOP, secret_key="wrong"))
    await unknown.start()
    with pytest.raises(BrokerRefused, match="check signature failed"):
        await unknown.producer(ORDER, CheckBook())
    await unknown.close()
