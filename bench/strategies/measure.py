"""One strategy at full speed: each client has its next buyer buy as soon as the last one was answered.

A first product, which is not counted, opens connections, prepares statements and says how fast this strategy is here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from bench import doubts
from bench.closed_loop import Timed
from bench.figures import Audit, Figure, Measure, Usage, latency_of
from bench.own_use import OwnUse
from bench.strategies.patience import PATIENCE_S
from bench.strategies.strategy import Books, Strategy, TooBusy

BUY_S = PATIENCE_S + 10
"""No strategy waits longer by itself: beyond it a server has gone."""

WARM_UNITS = 100_000
"""More than any strategy sells in its warm-up: a product that sells out would tell the pace of refusals."""
WARM_LEAST_S = 0.5
UNITS_LEAST = 100
ASKED_TIMES = 2
"""A strategy that is slower than its warm-up said is asked for so many times as long as planned, and no longer."""

YOURS, SOLD_OUT, TOO_BUSY, NO_ANSWER = "yours", "sold_out", "too_busy", "no_answer"


@dataclass(kw_only=True)
class Heard:
    """By all clients together, in `seconds` from `began_s` of the monotonic clock on. `answers`: those until `ends_s`;
    the others hear whatever comes. `used`: by this process, the strategy and the clients that ask it."""

    began_s: float
    ends_s: float
    asked: int = 0
    told: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    waited_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    used: tuple[Usage, ...] = ()


async def at_its_pace(strategy: Strategy, *, clients: int, warm_s: float, seconds: float) -> Timed:
    """Warmed up, and with as many units as it sells in about `seconds`, to half as many buyers more: a crowd that is
    no larger than the stock could not show what oversells."""
    stock = max(UNITS_LEAST, round(await _pace(strategy, clients, max(warm_s, WARM_LEAST_S)) * seconds))
    return await timed(strategy, stock=stock, buyers=stock + stock // 2, clients=clients, asked_s=ASKED_TIMES * seconds)


async def _pace(strategy: Strategy, clients: int, seconds: float) -> float:
    """How many a second were told "yours", of a product of their own."""
    await strategy.prepare(WARM_UNITS)
    heard = await _rush(strategy, buyers=WARM_UNITS, clients=clients, asked_s=seconds)
    await strategy.settle()
    return heard.answers[YOURS] / heard.seconds


async def timed(strategy: Strategy, *, stock: int, buyers: int, clients: int, asked_s: float) -> Timed:
    """Of a new product. The rate counts who was told "yours", over the time until the last answer; without stock,
    who was refused. `buyers` above `stock` takes refusals into the time and the latencies of the former. After
    `asked_s` nobody asks any more, and what was answered by then counts; the audit is of all who were told.
    """
    await strategy.prepare(stock)
    heard = await _rush(strategy, buyers=buyers, clients=clients, asked_s=asked_s)
    settling_s = time.monotonic()
    await strategy.settle()
    behind_s = time.monotonic() - settling_s
    sold = stock > 0
    figure = Figure(
        subject=strategy.name,
        measure=Measure.ACCEPT if sold else Measure.REJECT,
        clients=clients,
        unit="reservations" if sold else "requests",
        count=heard.answers[YOURS if sold else SOLD_OUT],
        seconds=heard.seconds,
        latency=latency_of(heard.waited_s),
        audit=audit(heard.told, await strategy.books()),
        usage=heard.used,
        answers=dict(heard.answers),
        note=_note(heard, buyers, asked_s, behind_s),
    )
    return Timed(figure=figure, began_s=heard.began_s, ended_s=heard.began_s + heard.seconds)


def _note(heard: Heard, buyers: int, asked_s: float, behind_s: float) -> str:
    stopped = f"; {heard.asked:,} of {buyers:,} buyers had asked after {asked_s:g} s" if heard.asked < buyers else ""
    behind = f"the last order was written {behind_s:.3f} s after the last answer{stopped}"
    return doubts.joined((behind, *map(doubts.limited, heard.used)))


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


async def _rush(strategy: Strategy, *, buyers: int, clients: int, asked_s: float) -> Heard:
    names = (f"buyer-{number}" for number in range(buyers))
    began_s, own = time.monotonic(), OwnUse()
    heard = Heard(began_s=began_s, ends_s=began_s + asked_s)
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(_client(strategy, names, heard))
    heard.used = (own.until_now("strategy"),)
    heard.seconds = min(time.monotonic() - began_s, asked_s)
    return heard


async def _client(strategy: Strategy, names: Iterator[str], heard: Heard) -> None:
    """Until no buyer is left, or nobody asks any more. A buyer who has asked is never left: its unit may be taken."""
    while (began := time.monotonic()) < heard.ends_s and (buyer := next(names, None)) is not None:
        heard.asked += 1
        answer = await _answer(strategy, buyer)
        answered = time.monotonic()
        heard.waited_s.append(answered - began)
        if answered <= heard.ends_s:
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
