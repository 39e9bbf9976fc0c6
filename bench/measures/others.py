"""What is compared with Dropgate: strategies in a process of their own, and RocketMQ's Java client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import assert_never

import msgspec

from bench.engine.halves import TOPIC
from bench.figures import Figure
from bench.measures.desk import Desk
from bench.peers import java
from bench.stand.child import BenchFailed
from bench.stand.dropgate import Stand
from bench.strategies.measure import ASKED_TIMES
from bench.subjects import Subject

STRATEGY_AROUND_S = 120.0
"""For its start, and for the buyers of both products who have asked and are not answered yet."""
HALVES_AROUND_S = 90.0
"""The topic is made as well, and half messages of a warm-up are sent."""


async def strategy(desk: Desk, name: str, clients: int) -> list[Figure]:
    """Warmed up in its own process; what it may be asked for in all is a bound of its own (ASKED_TIMES)."""
    numbers = ("--clients", str(clients), "--warm", str(desk.warm_s), "--seconds", str(desk.seconds))
    command = [sys.executable, "-m", "bench.strategies", name, *numbers]
    timeout_s = desk.warm_s + ASKED_TIMES * desk.seconds + STRATEGY_AROUND_S
    return [await desk.timed(f"strategy {name}", command, desk.environment, timeout_s=timeout_s)]


async def java_halves(desk: Desk, name_server: str, jars: Path, threads: int) -> list[Figure]:
    """To the topic that half_sends made."""
    load = java.Load(name_server=name_server, topic=TOPIC, threads=threads, seconds=desk.seconds)
    async with desk.watching() as watch:
        outcome = await java.measure(load, jars)
    match outcome:
        case java.Measured(figure=figure, began_s=began_s):
            return [msgspec.structs.replace(figure, servers=watch.servers(began_s, began_s + figure.seconds))]
        case java.Missing(reason=reason) | java.Failed(reason=reason):
            raise BenchFailed(reason)
        case _:
            assert_never(outcome)


async def half_sends(desk: Desk, stand: Stand, subject: Subject, clients: int) -> list[Figure]:
    """By the stand's own client, without a batch path around it."""
    command = stand.module("bench.engine.halves", str(clients), str(desk.seconds))
    timeout_s = desk.seconds + HALVES_AROUND_S
    figure = await desk.timed("half messages", command, stand.environment, timeout_s=timeout_s)
    return [msgspec.structs.replace(figure, subject=subject)]
