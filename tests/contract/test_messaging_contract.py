"""Every transport, by the same stories (tests/contract/messaging.py). Others join by a factory of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest

from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.transport import EmbeddedTransport
from service.adapters.system_clock import SystemClock
from service.ports.messaging import Transport
from tests.contract.messaging import (
    DelayStories,
    DeliveryStories,
    FifoStories,
    HalfMessageStories,
    KillStories,
    TimeJumpStories,
    TopicStories,
)
from tests.contract.messaging_aside import AsideStories
from tests.contract.messaging_stage import JumpingFactory, TransportTraits

QUICK = EmbeddedSettings(transaction_timeout_s=0.25, check_interval_s=0.3, check_deadline_s=0.2, check_max=3)


class ShiftedClock(SystemClock):
    """The machine's clock, moved on by what a test jumped."""

    def __init__(self) -> None:
        self.jumped_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.jumped_s * 1000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.jumped_s

    def offset_ms(self) -> int:
        return round(self.jumped_s * 1000)


class EmbeddedFactory:
    traits = TransportTraits(
        patience_s=10.0,
        first_check_s=QUICK.transaction_timeout_s,
        check_max=QUICK.check_max,
        invisible_s=0.4,
        retry_s=0.3,
        delay_s=0.5,
        delay_tolerance_s=2.0,
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = json.dumps({"transport": "embedded", "folder": str(folder), "settings": asdict(QUICK)})
        self._clock = ShiftedClock()
        self._opened: list[EmbeddedTransport] = []

    async def open(self) -> Transport:
        return await self._open()

    async def jump(self, seconds: float) -> None:
        self._clock.jumped_s += seconds

    async def close(self) -> None:
        for transport in self._opened:
            await transport.close()

    async def _open(self) -> EmbeddedTransport:
        transport = EmbeddedTransport(self.folder, self._clock, QUICK)
        await transport.start()
        self._opened.append(transport)
        return transport


class _Embedded:
    @pytest.fixture
    async def transport_factory(self, tmp_path: Path) -> AsyncIterator[JumpingFactory]:
        factory = EmbeddedFactory(tmp_path)
        yield factory
        await factory.close()


class TestEmbeddedHalfMessages(_Embedded, HalfMessageStories): ...


class TestEmbeddedDelivery(_Embedded, DeliveryStories): ...


class TestEmbeddedFifo(_Embedded, FifoStories): ...


class TestEmbeddedDelay(_Embedded, DelayStories): ...


class TestEmbeddedTimeJumps(_Embedded, TimeJumpStories): ...


class TestEmbeddedAside(_Embedded, AsideStories): ...


class TestEmbeddedTopics(_Embedded, TopicStories): ...


class TestEmbeddedKilled(_Embedded, KillStories): ...
