"""The delay levels of the brokers: all must have the same, as a message may go to any of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from service.adapters.rocketmq.classic.levels import DelayLevels
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.domain.errors import BrokerRefused

PROPERTY = "messageDelayLevel"


class LevelDesk:
    def __init__(self, cluster: Cluster, settings: ClassicSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._looking = asyncio.Lock()
        self._believed_until_s = 0.0
        self._levels: DelayLevels | None = None

    async def levels(self) -> DelayLevels:
        """BrokerRefused: the brokers do not agree, or one has none. Believed for a while."""
        async with self._looking:
            if self._levels is None or time.monotonic() >= self._believed_until_s:
                self._levels = await self._look()
                self._believed_until_s = time.monotonic() + self._settings.levels_believed_s
            return self._levels

    async def number_until(self, topic: str, remaining_s: float) -> int:
        """Of the level for a message that is due then."""
        levels = await self.levels()
        if (level := levels.until(remaining_s)) is None:
            raise BrokerRefused(topic, _longer(levels, remaining_s))
        return level.number

    async def not_offered(self, window_s: int) -> Sequence[str]:
        """One sentence with the remedy where there is no level of exactly this length, or the brokers do not agree."""
        try:
            levels = await self._look()
        except BrokerRefused as refused:
            return [f"the delay levels of broker {refused.what} cannot be used: {refused.why}"]
        if any(level.seconds == window_s for level in levels.levels):
            return []
        name = name_of(window_s)
        return [
            f"the brokers have no delay level {name} for the payment window, only {levels.text}: add {name} to "
            f"{PROPERTY} in each broker's configuration and restart it, or set DROPGATE_PAYMENT_WINDOW_S to one of them"
        ]

    async def _look(self) -> DelayLevels:
        brokers = await self._cluster.brokers()
        first, *others = await asyncio.gather(*map(_levels_of, brokers))
        for other, broker in zip(others, brokers[1:], strict=True):
            if other.levels != first.levels:
                raise BrokerRefused(
                    broker.address,
                    f"its {PROPERTY} is {other.text}, that of {brokers[0].address} is {first.text}: make them the same",
                )
        return first


def name_of(seconds: int) -> str:
    """As a broker's list has it: the largest unit that fits."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _longer(levels: DelayLevels, remaining_s: float) -> str:
    return (
        f"a message cannot wait {remaining_s:.0f} s: the longest delay level is {levels.longest.name}, add a longer "
        f"one to the brokers' {PROPERTY}"
    )


async def _levels_of(broker: BrokerAdmin) -> DelayLevels:
    config = await broker.config()
    try:
        return DelayLevels.parse(config.get(PROPERTY, ""))
    except ValueError as error:
        raise BrokerRefused(broker.address, str(error)) from error
