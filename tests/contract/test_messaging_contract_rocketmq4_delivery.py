"""What consumers must tell alike, on a real RocketMQ 5.4.0 through its classic protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import asdict

import pytest

from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.classic.transport import ClassicTransport
from service.ports.messaging import Transport
from tests.contract.messaging import DeliveryStories, FifoStories
from tests.contract.messaging_stage import Stage, TransportFactory, TransportTraits, collect
from tests.servers.rocketmq import BrokerOptions, RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq4, pytest.mark.timeout(240)]

TRAITS = TransportTraits(
    patience_s=30.0,
    first_check_s=6.0,
    check_max=15,
    invisible_s=1.0,
    # The shortest of the broker's own levels.
    retry_s=1.0,
    delay_s=5.0,
    delay_tolerance_s=2.0,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(BrokerOptions())
        stack.callback(broker.stop)
        broker.start()
        yield broker


class RocketMQ4Factory:
    traits = TRAITS

    def __init__(self, broker: RocketMQ) -> None:
        self._settings = ClassicSettings(name_servers=broker.name_server, prefix="contract")
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


class TestRocketMQ4Delivery(_RocketMQ4, DeliveryStories): ...


class TestRocketMQ4Fifo(_RocketMQ4, FifoStories): ...


@pytest.mark.faults
class TestRocketMQ4Killed(_RocketMQ4):
    @pytest.fixture
    async def stage(self, transport_factory: TransportFactory) -> Stage:
        stage = Stage(transport_factory, await transport_factory.open())
        await stage.set_up()
        return stage

    async def test_killed_before_it_settled_the_message_comes_again(self, stage: Stage) -> None:
        """F58. As its first attempt: this protocol counts what was sent back, and a dead process sends nothing."""
        await stage.publish(stage.normal, "held")
        assert await stage.run_victim("before_settle", stage.normal, "") == "held 1\n"
        consumer = await stage.consumer(stage.normal)
        (again,) = await collect(consumer, 1, stage.traits.patience_s)
        assert (again.key, again.attempt) == ("held", 1)
