"""What is missing before this process may accept a reservation: one sentence each, with the remedy (GET /readyz)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from service.core.directory import SaleDirectory
from service.core.registration import RegisteredProducer
from service.domain.errors import Unavailable
from service.ports.messaging import Topic, Transport
from service.ports.orders import SaleStore
from service.ports.stock import Stock

LOOK_TIMEOUT_S = 2.0
"""A component that does not answer this soon is as good as missing."""


class Readiness:
    def __init__(
        self,
        *,
        directory: SaleDirectory,
        sales: SaleStore,
        stock: Stock,
        transport: Transport,
        topics: Sequence[Topic],
        producer: RegisteredProducer,
    ) -> None:
        self._directory = directory
        self._sales = sales
        self._stock = stock
        self._transport = transport
        self._topics = topics
        self._producer = producer
        self._stopping = False

    def stop(self) -> None:
        """From now on not ready: a load balancer takes this process out while it drains."""
        self._stopping = True

    async def missing(self) -> Sequence[str]:
        """Empty: ready."""
        if self._stopping:
            return ["this process is stopping"]
        looks = [
            self._look("sql", self._schema),
            self._look("redis", self._redis),
            self._look("broker", self._topics_missing),
        ]
        missing = [problem for problems in await asyncio.gather(*looks) for problem in problems]
        if not self._producer.is_registered:
            missing.append("broker: this process is not registered for check-backs yet; it tries every second")
        if not self._directory.is_fresh:
            missing.append("sql: the sale rows could not be read for over 2 s; look at the database")
        return missing

    async def _look(self, name: str, look: Callable[[], Awaitable[Sequence[str]]]) -> list[str]:
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                return [f"{name}: {problem}" for problem in await look()]
        except Unavailable as error:
            why = (error.why or "no answer").rstrip(".")
            return [f"{name}: {why}; look at its server and the network to it"]
        except TimeoutError:
            return [f"{name}: no answer within {LOOK_TIMEOUT_S:g} s; look at its server and the network to it"]

    async def _schema(self) -> Sequence[str]:
        problem = await self._sales.schema_problem()
        return [problem] if problem else []

    async def _redis(self) -> Sequence[str]:
        return await self._stock.problems()

    async def _topics_missing(self) -> Sequence[str]:
        return await self._transport.missing(self._topics)
