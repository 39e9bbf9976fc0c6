"""The floors: HTTP with nothing behind it, HTTP with one EVALSHA, EVALSHA alone, multi-row INSERT alone."""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.figures import Figure, Measure
from bench.measures.desk import Desk, latency_of_good, note_of, servers_of, usage_of
from bench.stand.child import child
from bench.stand.dropgate import Address
from bench.subjects import Subject

WEB = {Subject.FLOOR_ECHO: "echo", Subject.FLOOR_EVALSHA: "evalsha"}
PATH = "/v1/sales/floor/reservations"
ALONE_AROUND_S = 60.0


@asynccontextmanager
async def _served(desk: Desk, subject: Subject, clients: int) -> AsyncIterator[tuple[Address, str, int]]:
    """Where it answers, a key that it takes, its process."""
    id_ = secrets.token_hex(4)
    secret = f"dg_{id_}_{secrets.token_urlsafe(24)}"
    hash_ = hashlib.sha256(secret.encode()).hexdigest()
    environment = {**desk.environment, "FLOOR_KEY_ID": id_, "FLOOR_KEY_HASH": hash_, "FLOOR_POOL": str(clients)}
    command = [sys.executable, "-m", "bench.floors.web", WEB[subject]]
    async with child(f"floor {WEB[subject]}", command, environment, desk.folder) as it:
        yield Address.of(await it.line()), secret, it.process.pid


async def web(desk: Desk, subject: Subject, clients: int) -> list[Figure]:
    async with _served(desk, subject, clients) as (address, secret, pid), desk.watching({subject.value: pid}) as watch:
        result = await desk.crowd(desk.spec(address, PATH, secret, clients))
    figure = Figure(
        subject=subject,
        measure=Measure.FLOOR,
        clients=clients,
        unit="requests",
        count=result.answers.get("202", 0),
        seconds=result.seconds,
        latency=latency_of_good(result),
        usage=usage_of(watch, result),
        servers=servers_of(watch, result),
        answers=result.answers,
        note=note_of(result),
    )
    return [figure]


async def alone(desk: Desk, subject: Subject, clients: int) -> list[Figure]:
    """In a process without HTTP (bench/floors/alone.py)."""
    kind = {Subject.REDIS_ALONE: "redis", Subject.RAW_INSERT: "insert"}[subject]
    command = [sys.executable, "-m", "bench.floors.alone", kind, str(clients), str(desk.seconds)]
    timeout_s = desk.seconds + ALONE_AROUND_S
    return [await desk.timed(f"floor {kind}", command, desk.environment, timeout_s=timeout_s)]
