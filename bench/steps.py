"""The plan as steps: floors and comparators first, then each stand with its keeper and its API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.figures import Figure, Measure, Variant
from bench.measures import afterwards, floors, others, selling, stories
from bench.measures.desk import Desk
from bench.measures.selling import Api
from bench.plan import Found, Group, Options, Step
from bench.report.facts import Fact
from bench.stand.dropgate import Stand
from bench.strategies.registry import STRATEGIES
from bench.subjects import Subject

JAVA_THREADS = 64
INSERT_CONNECTIONS = 4
"""On two cores more connections only wait for each other."""
HALF_CALLERS = (1, 16)
ONE_HALF = {"DROPGATE_BATCH_MAX": "1", "DROPGATE_LANES": "32"}
"""The same code with one candidate a half message, and as many in flight as gain anything."""
ONE_HALF_CLIENTS = 64
HOSTILE_CLIENTS, KILL_CLIENTS, PAY_CLIENTS = 63, 64, 16
STRATEGY_CLIENTS = range(2, 257)
"""One client competes with nobody, and beyond so many a strategy has no connection of Redis for each (POOL_MAX)."""
PEAK_CLIENTS = 64
"""Whose rate the paced ones are shares of."""


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """What the figures of a stand are called. None: `sql` sends no half message."""

    http: Subject
    engine: Subject
    one_half: Subject | None = None
    half_send: Subject | None = None


ROCKETMQ5 = Subjects(
    http=Subject.DROPGATE_5, engine=Subject.ENGINE_5, one_half=Subject.ONE_HALF_5, half_send=Subject.HALF_SEND_5
)
ROCKETMQ4 = Subjects(
    http=Subject.DROPGATE_4, engine=Subject.ENGINE_4, one_half=Subject.ONE_HALF_4, half_send=Subject.HALF_SEND_4
)
ON_SQL = Subjects(http=Subject.DROPGATE_SQL, engine=Subject.ENGINE_SQL)


def java_step(desk: Desk, name_server: str, jars: Path) -> Step:
    """After a stand's own half messages, which make the topic."""
    take = partial(others.java_halves, desk, name_server, jars, JAVA_THREADS)
    return Step(f"{Subject.JAVA_HALF}, {JAVA_THREADS} threads", Group.FLOORS, take)


def bare_steps(desk: Desk, options: Options) -> Iterator[Step]:
    """Without Dropgate."""
    for clients in options.clients:
        for subject in (Subject.FLOOR_ECHO, Subject.FLOOR_EVALSHA):
            yield Step(f"{subject}, {clients} clients", Group.FLOORS, partial(floors.web, desk, subject, clients))
        redis = partial(floors.alone, desk, Subject.REDIS_ALONE, clients)
        yield Step(f"{Subject.REDIS_ALONE}, {clients} clients", Group.FLOORS, redis)
    insert = partial(floors.alone, desk, Subject.RAW_INSERT, INSERT_CONNECTIONS)
    yield Step(f"{Subject.RAW_INSERT}, {INSERT_CONNECTIONS} connections", Group.FLOORS, insert)
    for name in STRATEGIES:
        for clients in (it for it in options.clients if it in STRATEGY_CLIENTS):
            take = partial(others.strategy, desk, name, clients)
            yield Step(f"strategy {name}, {clients} clients", Group.STRATEGIES, take)


def stand_steps(desk: Desk, options: Options, api: Api, subjects: Subjects, pay_secret: str) -> Iterator[Step]:
    """With the stand's keeper and this API running."""
    stand, on_sql = api.stand, api.on_sql
    if subjects.half_send is not None:
        for callers in HALF_CALLERS:
            halves = partial(others.half_sends, desk, stand, subjects.half_send, callers)
            yield Step(f"{subjects.half_send}, {callers} callers", Group.FLOORS, halves)
    for clients in options.clients:
        engine = partial(selling.engine, desk, stand, subjects.engine, clients, on_sql=on_sql)
        yield Step(f"{subjects.engine}, {clients} clients", Group.ENGINE, engine)
    if subjects.one_half is not None:
        one = replace(stand, environment={**stand.environment, **ONE_HALF})
        halved = partial(_one_half, desk, one, subjects.one_half)
        yield Step(f"{subjects.one_half}, {ONE_HALF_CLIENTS} clients", Group.ENGINE, halved)
    for clients in options.clients:
        yield Step(f"{api.subject} accepts, {clients} clients", Group.HTTP, partial(selling.accept, desk, api, clients))
        yield Step(f"{api.subject} rejects, {clients} clients", Group.HTTP, partial(selling.reject, desk, api, clients))
    if not on_sql:
        yield from _alone_steps(desk, options, api, pay_secret)


def _alone_steps(desk: Desk, options: Options, api: Api, pay_secret: str) -> Iterator[Step]:
    yield Step(f"{api.subject}, by a clock", Group.PACED, partial(_paced, desk, api))
    yield Step(f"{api.subject}, drain", Group.AFTERWARDS, partial(afterwards.drained, desk, api.stand))
    payment = partial(afterwards.payment, desk, api, pay_secret, PAY_CLIENTS)
    yield Step(f"{api.subject}, payments", Group.AFTERWARDS, payment)
    yield Step(f"{api.subject}, expiry", Group.AFTERWARDS, partial(afterwards.expiry, desk, api.stand))
    yield Step(f"{api.subject}, hostile requests", Group.STORIES, partial(stories.hostile, desk, api, HOSTILE_CLIENTS))
    yield Step(f"{api.subject}, rush", Group.STORIES, partial(stories.rush, desk, api), repeated=False)
    for part in stories.BEHIND:
        killed = partial(stories.killed, desk, api, KILL_CLIENTS, part)
        yield Step(f"{api.subject}, {part} killed", Group.STORIES, killed, repeated=False)
    killed = partial(stories.api_killed, desk, api, KILL_CLIENTS)
    yield Step(f"{api.subject}, API killed", Group.STORIES, killed, repeated=False)
    soak = partial(_soak, desk, api, options.soak_s)
    yield Step(f"{api.subject}, soak", Group.SOAK, soak, repeated=False)


async def _one_half(desk: Desk, stand: Stand, subject: Subject) -> Found:
    """Its Redis is Dropgate's: no fact about it twice."""
    found = await selling.engine(desk, stand, subject, ONE_HALF_CLIENTS)
    return [it for it in found if isinstance(it, Figure)]


async def _paced(desk: Desk, api: Api) -> Found:
    """The peak first: the shares are of what this machine does now."""
    peak = await _peak(desk, api)
    return [
        await selling.at_rate(desk, api, Variant.HALF_THE_PEAK, peak.rate_per_s / 2),
        await selling.at_rate(desk, api, Variant.TENTH_OF_THE_PEAK, peak.rate_per_s / 10),
        await selling.at_rate(desk, api, Variant.TENTH_AMONG_ALL, peak.rate_per_s / 10),
    ]


async def _soak(desk: Desk, api: Api, seconds: float) -> Found:
    peak = await _peak(desk, api)
    return await stories.soak(desk, api, peak.rate_per_s / 10, seconds)


async def _peak(desk: Desk, api: Api) -> Figure:
    found: list[Figure | Fact] = list(await selling.accept(desk, api, PEAK_CLIENTS))
    return next(it for it in found if isinstance(it, Figure) and it.measure is Measure.ACCEPT)
