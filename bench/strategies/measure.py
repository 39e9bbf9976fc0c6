"""One strategy at full speed: each client has its next buyer buy as soon as the last one was answered."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from bench.figures import Audit, Figure, Measure, latency_of
from bench.strategies.patience import PATIENCE_S
from bench.strategies.strategy import Books, Strategy, TooBusy

BUY_S = PATIENCE_S + 10
"""No strategy waits longer by itself: beyond it a server has gone."""

YOURS, SOLD_OUT, TOO_BUSY, NO_ANSWER = "yours", "sold_out", "too_busy", "no_answer"


@dataclass(kw_only=True)
class Heard:
    """By all clients together."""

    told: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    waited_s: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def measure(strategy: Strategy, *, stock: int, buyers: int, clients: int) -> Figure:
    """Of a new product. The rate counts who was told "yours", over the time until the last answer; without stock,
    who was refused. `buyers` above `stock` takes refusals into the time and the latencies of the former.
    """
    await strategy.prepare(stock)
    heard = await _rush(strategy, buyers=buyers, clients=clients)
    began = time.perf_counter()
    await strategy.settle()
    behind_s = time.perf_counter() - began
    sold = stock > 0
    return Figure(
        subject=strategy.name,
        measure=Measure.ACCEPT if sold else Measure.REJECT,
        clients=clients,
        unit="reservations" if sold else "requests",
        count=len(heard.told) if sold else buyers,
        seconds=heard.seconds,
        latency=latency_of(heard.waited_s),
        audit=audit(heard.told, await strategy.books()),
        answers=dict(heard.answers),
        note=f"the last order was written {behind_s:.3f} s after the last answer",
    )


def audit(told: Collection[str], books: Books) -> Audit:
    """What buyers heard, held against settled books."""
    return Audit(
        stock=books.stock,
        told=len(told),
        sold=len(books.orders),
        oversold=max(0, len(books.orders) - books.stock),
        lost=len(set(told) - books.orders),
        in_doubt=max(0, books.units_taken - len(books.orders)),
    )


async def _rush(strategy: Strategy, *, buyers: int, clients: int) -> Heard:
    heard, names = Heard(), (f"buyer-{number}" for number in range(buyers))
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(_client(strategy, names, heard))
    heard.seconds = time.perf_counter() - began
    return heard


async def _client(strategy: Strategy, names: Iterator[str], heard: Heard) -> None:
    for buyer in names:
        began = time.perf_counter()
        answer = await _answer(strategy, buyer)
        heard.waited_s.append(time.perf_counter() - began)
        heard.answers[answer] += 1
        if answer == YOURS:
            heard.told.add(buyer)


async def _answer(strategy: Strategy, buyer: str) -> str:
    try:
        async with asyncio.timeout(BUY_S):
            return YOURS if await strategy.buy(buyer) else SOLD_OUT
    except TooBusy:
        return TOO_BUSY
    except TimeoutError:
        return NO_ANSWER
