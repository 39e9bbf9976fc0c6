"""Half messages alone, by the product's own producer, each committed at once: what a batch costs before it holds
anything. `python -m bench.engine.halves CLIENTS SECONDS`; the latency is that of the half message, without COMMIT."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import uvloop

from bench.engine.clients import READY_S
from bench.figures import Figure, Measure, latency_of
from service.adapters.system_clock import SystemClock
from service.bootstrap.adapters import open_transport
from service.domain.check_back import Verdict
from service.observability.log import configure
from service.ports.messaging import CheckRequest, OutgoingMessage, Topic, TopicType, TransactionalProducer
from service.settings import Settings

TOPIC = "dropgate-bench-halves"
BODY = b"x" * 200
WARM = 50


async def _committed(_: CheckRequest) -> Verdict:
    """To a check-back about what a killed run left."""
    return Verdict.COMMIT


async def measure(clients: int, seconds: float) -> Figure:
    settings = Settings()
    configure(json=True, level=settings.log_level)
    transport = open_transport(settings, SystemClock())
    await transport.start()
    try:
        await transport.create_topics([Topic(name=TOPIC, type=TopicType.TRANSACTION)])
        async with asyncio.timeout(READY_S):
            producer = await transport.producer(TOPIC, _committed)
            for number in range(WARM):
                await _half(producer, number)
        return await _sent(producer, clients, seconds)
    finally:
        await transport.close()


async def _half(producer: TransactionalProducer, number: int) -> float:
    """Seconds until it was stored."""
    asked_s, stored_s = time.monotonic(), 0.0

    async def decide() -> Verdict:
        nonlocal stored_s
        stored_s = time.monotonic()
        return Verdict.COMMIT

    await producer.transact(OutgoingMessage(topic=TOPIC, body=BODY, key=f"half-{number}"), decide)
    return stored_s - asked_s


async def _sent(producer: TransactionalProducer, clients: int, seconds: float) -> Figure:
    latencies: list[float] = []
    began_s, numbers = time.monotonic(), iter(range(1 << 40))

    async def client() -> None:
        while time.monotonic() < began_s + seconds:
            latencies.append(await _half(producer, next(numbers)))

    await asyncio.gather(*(client() for _ in range(clients)))
    return Figure(
        subject="half message alone",
        measure=Measure.FLOOR,
        clients=clients,
        unit="messages",
        count=len(latencies),
        seconds=time.monotonic() - began_s,
        latency=latency_of(latencies),
    )


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(measure(int(sys.argv[1]), float(sys.argv[2])))).decode())
