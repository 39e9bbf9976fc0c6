"""What is missing before this process may accept a reservation: one sentence each, with the remedy (GET /readyz).

A component that is away refuses its calls by itself, and serves the next one when it is back. One that answers and is
not set up as it must be (an evicting Redis, a missing group, a topic of another type, a schema that was not migrated)
would take a reservation and lose it: what the last look found of it is remembered, and shuts the gate (`require`).
What cannot be seen of it is advice: said, and shuts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum

from service.core.directory import SaleDirectory
from service.core.registration import RegisteredProducer
from service.domain.errors import SettingRefused, Unavailable
from service.domain.sale import Gate
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.messaging import Topic, Transport
from service.ports.orders import SaleStore
from service.ports.stock import Stock

LOOK_TIMEOUT_S = 2.0
"""A component that does not answer this soon is as good as missing."""
LOOK_S = 1.0
"""Between two turns: while something is wrong, what was mended is noticed within it."""
CALM_S = 5.0
"""While all is well a turn looks no more often than this: it asks each broker for its topics."""
REMEDY = "look at its server and the network to it"


class Component(StrEnum):
    SQL = "sql"
    REDIS = "redis"
    BROKER = "broker"


_NEEDS: Mapping[Gate, Sequence[Component]] = {Gate.REDIS: tuple(Component), Gate.SQL: (Component.SQL,)}
"""By the road that a batch takes."""

Look = Callable[[], Awaitable[Sequence[str]]]


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
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._sales = sales
        self._stock = stock
        self._transport = transport
        self._topics = topics
        self._producer = producer
        self._clock = clock
        self._stopping = False
        self._looking: asyncio.Task[Sequence[str]] | None = None
        self._looked_at_s = 0.0
        self._said: Sequence[str] | None = None
        self._wrong: dict[Component, Sequence[str]] = {}
        """What is wrong with how each is set up, by the last look that it answered; not there before the first."""
        self._silent: set[Component] = set()
        """Which did not answer when they were looked at last."""
        self._advice: Sequence[str] = ()

    def stop(self) -> None:
        """From now on not ready: a load balancer takes this process out while it drains."""
        self._stopping = True

    @property
    def advice(self) -> Sequence[str]:
        """What the last look could not see, and what to see to; no reason to sell nothing."""
        return self._advice

    async def turn(self) -> int:
        """A look for `require`, where nobody asks /readyz."""
        if self._said == () and self._clock.monotonic_s() - self._looked_at_s < CALM_S:
            return 0
        await self.missing()
        return 1

    async def missing(self) -> Sequence[str]:
        """Empty: ready."""
        if self._stopping:
            return ("this process is stopping",)
        missing = [*await self._look()]
        if not self._producer.is_registered:
            why = "" if self._producer.why_not is None else f" ({self._producer.why_not})"
            missing.append(f"broker: this process is not registered for check-backs yet{why}; it tries every second")
        if not self._directory.is_fresh:
            missing.append("sql: the sale rows could not be read for over 2 s; look at the database")
        return self._note(tuple(missing))

    def require(self, road: Gate) -> None:
        """Unavailable: what this road needs is not set up as it must be, or has not been seen yet. From memory."""
        for component in _NEEDS.get(road, ()):
            wrong = self._wrong.get(component)
            if wrong is None and not self._is_seen_otherwise(component):
                raise Unavailable(component.value, "this process has not seen it yet")
            if wrong:
                raise Unavailable(component.value, wrong[0])

    def _is_seen_otherwise(self, component: Component) -> bool:
        """A registered producer has seen its topic and the topic's type, by another way than the looks go."""
        return component is Component.BROKER and component in self._silent and self._producer.is_registered

    def _note(self, missing: Sequence[str]) -> Sequence[str]:
        """Said once, when it changes."""
        if missing != self._said:
            if missing:
                warn(Action.NOT_READY, missing="; ".join(missing))
            elif self._said is not None:
                log(Action.READY)
        self._said = missing
        return missing

    # --- one look -----------------------------------------------------------------------------------------------------

    async def _look(self) -> Sequence[str]:
        """Who asks while a look is under way shares it: however many ask, the components are asked once at a time."""
        if self._looking is None or self._looking.done():
            self._looked_at_s = self._clock.monotonic_s()
            self._looking = asyncio.create_task(self._look_at_all(), name="readiness")
        return await asyncio.shield(self._looking)

    async def _look_at_all(self) -> Sequence[str]:
        said = await asyncio.gather(
            self._look_at(Component.SQL, self._schema),
            self._look_at(Component.REDIS, self._redis),
            self._look_at(Component.BROKER, self._transport.away, shuts=False),
            self._look_at(Component.BROKER, self._topics_missing),
        )
        return [sentence for sentences in said for sentence in sentences]

    async def _look_at(self, component: Component, look: Look, *, shuts: bool = True) -> list[str]:
        """`shuts`: what it finds is a reason to shut the gate. What is away is none: it may come back as it was."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                wrong = await _or_refused(look)
        except (Unavailable, TimeoutError) as error:
            if shuts:
                self._silent.add(component)
            return [f"{component}: {_why_silent(error)}"]
        if shuts:
            self._silent.discard(component)
            self._wrong[component] = wrong
        return [f"{component}: {problem}" for problem in wrong]

    async def _redis(self) -> Sequence[str]:
        problems, advice = await self._stock.problems(), await self._stock.advice()
        said = tuple(f"{Component.REDIS}: {sentence}" for sentence in advice)
        if said and said != self._advice:
            warn(Action.ADVICE, advice="; ".join(said))
        self._advice = said
        return problems

    async def _schema(self) -> Sequence[str]:
        problem = await self._sales.schema_problem()
        return [problem] if problem else []

    async def _topics_missing(self) -> Sequence[str]:
        return await self._transport.missing(self._topics)


async def _or_refused(look: Look) -> Sequence[str]:
    """A setting that proves wrong only by what answers is a finding like any other."""
    try:
        return await look()
    except SettingRefused as error:
        return (f"{error.problem}.",)


def _why_silent(error: Unavailable | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {LOOK_TIMEOUT_S:g} s; {REMEDY}"
    why = (error.why or "no answer").rstrip(".")
    return f"{why}; {error.remedy or REMEDY}"
