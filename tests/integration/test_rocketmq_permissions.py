"""RocketMQ with access control: the permissions of docs/servers.md are enough, and without them it is said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.transport import GrpcTransport
from service.adapters.rocketmq.remoting.signing import Credentials
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import Dead
from tests.contract.messaging_stage import CheckBook, always, collect, eventually, keys
from tests.fixtures.rocketmq_permissions import GROUP, ORDER, SHOP, STRANGER, TOPICS, guarded_broker, message
from tests.servers.rocketmq import RocketMQ

pytestmark = [pytest.mark.rocketmq, pytest.mark.timeout(240)]

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with guarded_broker() as broker:
        yield broker


def transport_of(broker: RocketMQ, user: Credentials) -> GrpcTransport:
    return GrpcTransport(
        GrpcSettings(
            proxy=broker.proxy,
            name_servers=broker.name_server,
            access_key=user.access_key,
            secret_key=user.secret_key,
        )
    )


@pytest.fixture
async def shop(broker: RocketMQ) -> AsyncIterator[GrpcTransport]:
    transport = transport_of(broker, SHOP)
    await transport.start()
    await transport.create_topics(TOPICS.all())
    yield transport
    await transport.close()


async def test_orders_check_backs_and_events_pass_with_the_permissions_of_the_page(shop: GrpcTransport) -> None:
    assert await shop.missing(TOPICS.all()) == []
    producer = await shop.producer(ORDER, CheckBook({"doubt": Verdict.COMMIT}))
    consumer = await shop.consumer(ORDER, GROUP, invisible_s=60)
    await producer.transact(message("sold"), always(Verdict.COMMIT))
    await producer.transact(message("doubt"), always(Verdict.UNKNOWN))
    assert sorted(keys(await collect(consumer, 2, PATIENCE_S))) == ["doubt", "sold"]
    await shop.publisher().publish([message("paid", TOPICS.events.name, fifo_group="anna")])
    assert (await shop.backlog(ORDER, GROUP)).undelivered == 0


async def test_what_the_broker_put_aside_is_listed_resumed_and_forgotten_too(shop: GrpcTransport) -> None:
    checks = CheckBook()
    producer = await shop.producer(ORDER, checks)
    for key in ("first", "second"):
        await producer.transact(message(key), always(Verdict.UNKNOWN))

    async def discarded() -> bool:
        return sorted(it.key for it in await shop.discarded()) == ["first", "second"]

    await eventually(discarded, PATIENCE_S)
    first, second = await shop.discarded()
    await shop.forget_discarded(first.message_id)
    checks.answers[second.key] = Verdict.COMMIT
    await shop.resume_discarded(second.message_id)
    assert await shop.discarded() == []
    consumer = await shop.consumer(ORDER, GROUP, invisible_s=60)
    (delivery,) = await collect(consumer, 1, PATIENCE_S, done=False)
    assert delivery.key == second.key
    await consumer.settle(delivery, Dead(why="nobody can read it"))

    async def dead() -> bool:
        return [it.key for it in await shop.dead_letters(GROUP)] == [second.key]

    await eventually(dead, PATIENCE_S)
    (letter,) = await shop.dead_letters(GROUP)
    await shop.forget_dead_letter(GROUP, letter.message_id)
    assert await shop.dead_letters(GROUP) == []


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (STRANGER, "no permission to access Topic:dropgate"),
        (replace(SHOP, secret_key="wrong"), "check signature failed"),
    ],
    ids=["stranger", "wrong secret"],
)
async def test_who_is_not_allowed_or_not_known_is_told(broker: RocketMQ, user: Credentials, said: str) -> None:
    transport = transport_of(broker, user)
    await transport.start()
    with pytest.raises(BrokerRefused, match=said):
        await transport.create_topics([replace(TOPICS.order, name="dropgate-another")])
    with pytest.raises(BrokerUnavailable):
        await transport.producer(ORDER, CheckBook())
    await transport.close()
