"""Half messages alone, by the product's own producer, each committed at once: what a batch costs before it holds
anything. `python -m bench.engine.halves CLIENTS SECONDS`; the latency is that of the half message, without COMMIT."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial

import msgspec
import uvloop

from bench.closed_loop import Timed, closed_loop
from bench.engine.clients import READY_S
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


async def measure(clients: int, seconds: float) -> Timed:
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
        return await closed_loop(
            partial(_half, producer), "half message alone", clients=clients, seconds=seconds, unit="messages"
        )
    finally:
        await transport.close()


async def _half(producer: TransactionalProducer, number: int) -> float:
    """When it was stored."""
    stored_s = 0.0

    async def decide() -> Verdict:
        nonlocal stored_s
        stored_s = time.monotonic()
        return Verdict.COMMIT

    await producer.transact(OutgoingMessage(topic=TOPIC, body=BODY, key=f"half-{number}"), decide)
    return stored_s


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(measure(int(sys.argv[1]), float(sys.argv[2])))).decode())
