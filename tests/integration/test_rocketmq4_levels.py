"""A payment window that a broker's delay levels must have: refused where it is not there, found wherever it stands."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.core.topics import Topics
from service.domain.errors import BrokerRefused
from service.ports.messaging import OutgoingMessage
from tests.contract.messaging import now_ms
from tests.contract.messaging_stage import collect
from tests.servers.rocketmq import DEFAULT, BrokerOptions, RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.timeout(240)]

SCHEDULED = "SCHEDULE_TOPIC_XXXX"
"""Where a broker keeps what waits: a queue for each level."""
QUARTER_S = 900
LEVELS_MAX = 20
TOPICS = Topics.named("dropgate")
LISTS = {DEFAULT.message_delay_level: None, f"{DEFAULT.message_delay_level} 15m": 19, "1h 15m 5s": 2}
"""And the number of 15m in each."""


@pytest.fixture(scope="module", params=LISTS)
def broker(request: pytest.FixtureRequest) -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(BrokerOptions(message_delay_level=request.param))
        stack.callback(broker.stop)
        broker.start()
        yield broker


@pytest.fixture
async def transport(broker: RocketMQ) -> AsyncIterator[ClassicTransport]:
    transport = ClassicTransport(ClassicSettings(name_servers=broker.name_server, payment_window_s=QUARTER_S))
    await transport.start()
    await transport.create_topics(TOPICS.all())
    yield transport
    await transport.close()


def message(key: str, delay_s: float) -> OutgoingMessage:
    due_ms = now_ms() + round(delay_s * 1000)
    return OutgoingMessage(topic=TOPICS.payment_timeout.name, key=key, body=b"{}", deliver_at_ms=due_ms)


async def test_a_window_that_is_no_level_is_refused_and_one_that_is_carries_its_number(
    broker: RocketMQ, transport: ClassicTransport
) -> None:
    """F23: never a fixed number, and never 20 minutes for 15."""
    number, sentences = LISTS[broker.options.message_delay_level], await transport.missing(TOPICS.all())
    if number is None:
        (sentence,) = sentences
        assert "no delay level 15m for the payment window" in sentence
        assert "add 15m to messageDelayLevel in each broker's configuration and restart it" in sentence
        return
    assert sentences == []
    await transport.publisher().publish([message("in-a-quarter", QUARTER_S - 0.05)])
    queues = BrokerQueues(transport.client, broker.broker)
    waiting = [(await queues.offsets(SCHEDULED, queue)).end for queue in range(LEVELS_MAX)]
    assert [queue + 1 for queue, end in enumerate(waiting) if end] == [number]


async def test_a_short_level_is_waited_for_in_real_time(transport: ClassicTransport) -> None:
    topic = TOPICS.payment_timeout
    consumer = await transport.consumer(topic.name, topic.group or "", invisible_s=60)
    sent_s = time.monotonic()
    await transport.publisher().publish([message("in-five", 5.0)])
    (delivery,) = await collect(consumer, 1, 30.0)
    assert delivery.key == "in-five"
    assert 5.0 <= time.monotonic() - sent_s < 8.0


async def test_what_is_longer_than_every_level_is_refused(transport: ClassicTransport) -> None:
    with pytest.raises(BrokerRefused, match="the longest delay level is"):
        await transport.publisher().publish([message("in-three-hours", 3 * 3600)])
