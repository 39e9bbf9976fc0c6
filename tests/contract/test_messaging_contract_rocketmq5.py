"""The same stories on a real RocketMQ 5.4.0, through its gRPC proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict

import pytest

from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.transport import GrpcTransport
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused
from service.ports.messaging import Backlog, Transport
from tests.contract.messaging import (
    DelayStories,
    DeliveryStories,
    FifoStories,
    HalfMessageStories,
    KillStories,
    TopicStories,
)
from tests.contract.messaging_stage import Stage, TransportFactory, TransportTraits, collect, eventually
from tests.servers.rocketmq import BrokerOptions, RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("rocketmq"), pytest.mark.timeout(240)]

OPTIONS = BrokerOptions(
    transaction_timeout_ms=1_000,
    transaction_check_interval_ms=1_000,
    transaction_check_max=3,
    # It notes ends in bundles every 3 s, half of its own 6 s: with a shorter time-out it asks about what has ended.
    more={"transactionOpBatchInterval": "100"},
    # RocketMQ's own least invisible time is 10 s: every story of a message that comes again would take that long.
    more_proxy={"minInvisibleTimeMillsForRecv": 1_000, "useEndpointPortFromRequest": True},
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(OPTIONS)
        stack.callback(broker.stop)
        broker.start()
        yield broker


class RocketMQ5Factory:
    traits = TransportTraits(
        patience_s=30.0,
        first_check_s=OPTIONS.transaction_timeout_ms / 1000,
        check_max=OPTIONS.transaction_check_max,
        invisible_s=1.0,
        retry_s=1.0,
        delay_s=3.0,
        delay_tolerance_s=5.0,
        can_jump_time=False,
    )

    def __init__(self, broker: RocketMQ) -> None:
        self._settings = GrpcSettings(
            proxy=broker.proxy, name_servers=broker.name_server, prefix="contract", check_deadline_s=0.8
        )
        self.spec = json.dumps({"transport": "rocketmq5", "settings": asdict(self._settings)})
        self._client = RemotingClient()
        self._cluster = Cluster(self._client, broker.name_server)
        self._queues = BrokerQueues(self._client, broker.broker)
        self._opened: list[GrpcTransport] = []

    async def open(self) -> Transport:
        transport = GrpcTransport(self._settings)
        await transport.start()
        self._opened.append(transport)
        return transport

    async def jump(self, seconds: float) -> None:
        raise AssertionError("this broker's clock is its own")

    async def discarded(self) -> Sequence[str]:
        return [message.key for message in await self._opened[0].discarded()]

    async def resume(self, key: str) -> None:
        (message_id,) = [m.message_id for m in await self._opened[0].discarded() if m.key == key]
        await self._cluster.resume_check(message_id)

    async def dead_letters(self, group: str) -> Sequence[str]:
        try:
            pulled = await self._queues.pull(f"%DLQ%{group}", 0, 0, 32)
        except BrokerRefused:  # the broker makes the topic with the first one
            return []
        return [message.properties["KEYS"] for message in pulled.messages]

    async def close(self) -> None:
        await asyncio.gather(*(transport.close() for transport in self._opened))
        await self._client.close()


class _RocketMQ5:
    @pytest.fixture
    async def transport_factory(self, broker: RocketMQ) -> AsyncIterator[TransportFactory]:
        factory = RocketMQ5Factory(broker)
        yield factory
        await factory.close()


class TestRocketMQ5HalfMessages(_RocketMQ5, HalfMessageStories): ...


class TestRocketMQ5Delivery(_RocketMQ5, DeliveryStories): ...


class TestRocketMQ5Fifo(_RocketMQ5, FifoStories): ...


class TestRocketMQ5Delay(_RocketMQ5, DelayStories): ...


class TestRocketMQ5Topics(_RocketMQ5, TopicStories):
    async def test_the_backlog_counts_halves_and_what_is_not_acknowledged(self, stage: Stage) -> None:
        """The same numbers, a little later: this broker notes an end in bundles, every 3 s by its own settings."""
        producer, consumer = await stage.producer(), await stage.consumer(stage.order)
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        await stage.transact(producer, "sold", Verdict.COMMIT)

        async def is_backlog(expected: Backlog) -> bool:
            return await stage.transport.backlog(stage.order.name, stage.order.group or "") == expected

        await eventually(lambda: is_backlog(Backlog(halves=1, undelivered=1)), stage.traits.patience_s)
        await collect(consumer, 1, stage.traits.patience_s)
        await eventually(lambda: is_backlog(Backlog(halves=1, undelivered=0)), stage.traits.patience_s)
        await eventually(lambda: is_backlog(Backlog(halves=0, undelivered=0)), stage.traits.patience_s)


class TestRocketMQ5Killed(_RocketMQ5, KillStories): ...
