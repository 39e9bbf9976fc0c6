"""The same stories on a real RocketMQ 5.4.0, by the classic protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import pytest

from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.domain.check_back import Verdict
from service.ports.messaging import Transport
from tests.contract.messaging import (
    DelayStories,
    DeliveryStories,
    FifoStories,
    HalfMessageStories,
    KillStories,
    TopicStories,
)
from tests.contract.messaging_aside import AsideStories
from tests.contract.messaging_stage import (
    CheckBook,
    Stage,
    TransportFactory,
    TransportTraits,
    collect,
    keys,
)
from tests.servers.rocketmq import BrokerOptions, RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.timeout(240)]

OPTIONS = BrokerOptions(
    transaction_timeout_ms=1_000,
    transaction_check_interval_ms=1_000,
    transaction_check_max=3,
    # It notes ends in bundles every 3 s, half of its own 6 s: with a shorter time-out it asks about what has ended.
    more={"transactionOpBatchInterval": "100"},
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(OPTIONS)
        stack.callback(broker.stop)
        broker.start()
        yield broker


class RocketMQ4Factory:
    traits = TransportTraits(
        patience_s=30.0,
        first_check_s=OPTIONS.transaction_timeout_ms / 1000,
        check_max=OPTIONS.transaction_check_max,
        invisible_s=1.0,
        retry_s=1.0,
        delay_s=5.0,
        delay_tolerance_s=2.0,
    )

    def __init__(self, broker: RocketMQ, **more: Any) -> None:
        self._settings = replace(
            ClassicSettings(name_servers=broker.name_server, prefix="contract", check_deadline_s=0.8), **more
        )
        self.spec = json.dumps({"transport": "rocketmq4", "settings": asdict(self._settings)})
        self._opened: list[ClassicTransport] = []

    async def open(self) -> Transport:
        transport = ClassicTransport(self._settings)
        await transport.start()
        self._opened.append(transport)
        return transport

    async def close(self) -> None:
        await asyncio.gather(*(transport.close() for transport in self._opened))


class _RocketMQ4:
    @pytest.fixture
    async def transport_factory(self, broker: RocketMQ) -> AsyncIterator[TransportFactory]:
        factory = RocketMQ4Factory(broker)
        yield factory
        await factory.close()


class TestRocketMQ4HalfMessages(_RocketMQ4, HalfMessageStories): ...


class TestRocketMQ4Delivery(_RocketMQ4, DeliveryStories): ...


class TestRocketMQ4Fifo(_RocketMQ4, FifoStories): ...


class TestRocketMQ4Delay(_RocketMQ4, DelayStories): ...


class TestRocketMQ4Aside(_RocketMQ4, AsideStories): ...


class TestRocketMQ4Topics(_RocketMQ4, TopicStories):
    async def test_the_backlog_counts_halves_and_what_is_not_acknowledged(self, stage: Stage) -> None:
        """The same numbers, a little later."""
        producer, consumer = await stage.producer(), await stage.consumer(stage.order)
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        await stage.transact(producer, "sold", Verdict.COMMIT)
        await stage.until_backlog(halves=1, undelivered=1)
        await collect(consumer, 1, stage.traits.patience_s)
        await stage.until_backlog(halves=0, undelivered=0)


class TestRocketMQ4Killed(_RocketMQ4, KillStories):
    async def test_killed_after_the_commit_the_message_is_there(self, stage: Stage) -> None:
        """Or is asked about: the package writes COMMIT on a thread of its own, which may be killed before."""
        await stage.run_victim("after_commit", stage.order, "sold")
        await stage.producer(CheckBook({"sold": Verdict.COMMIT}))
        consumer = await stage.consumer(stage.order)
        assert keys(await collect(consumer, 1, stage.traits.patience_s)) == ["sold"]

    async def test_killed_before_it_settled_the_message_comes_again(self, stage: Stage) -> None:
        """F58. As its first attempt: this protocol counts what was sent back, and a dead process sends nothing."""
        await stage.publish(stage.normal, "held")
        assert await stage.run_victim("before_settle", stage.normal, "") == "held 1\n"
        consumer = await stage.consumer(stage.normal)
        (again,) = await collect(consumer, 1, stage.traits.patience_s)
        assert (again.key, again.attempt) == ("held", 1)
