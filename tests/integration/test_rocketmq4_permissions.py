"""RocketMQ with access control, by the classic protocol: the permissions of docs/servers.md are enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.adapters.rocketmq.remoting.signing import Credentials
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import Dead, RetryAfter
from tests.contract.messaging_stage import CheckBook, always, collect, eventually, keys
from tests.fixtures.rocketmq_permissions import GROUP, ORDER, SHOP, STRANGER, TOPICS, guarded_broker, message
from tests.servers.rocketmq import RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.timeout(240)]

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with guarded_broker() as broker:
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
