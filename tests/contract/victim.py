"""A process that is killed at a named point: `python -m tests.contract.victim SPEC POINT TOPIC GROUP KEY`.

It kills itself, with SIGKILL, so that the point is exact. SPEC is JSON: `transport` names the
kind, the rest is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.transport import EmbeddedTransport
from service.adapters.system_clock import SystemClock
from service.domain.check_back import Verdict
from service.ports.messaging import CheckRequest, OutgoingMessage, Transport


def open_transport(spec: str) -> Transport:
    match json.loads(spec):
        case {"transport": "embedded", "folder": folder, "settings": settings}:
            return EmbeddedTransport(Path(folder), SystemClock(), EmbeddedSettings(**settings))
        case {"transport": "rocketmq5", "settings": settings}:
            from service.adapters.rocketmq.grpc.settings import GrpcSettings
            from service.adapters.rocketmq.grpc.transport import GrpcTransport

            return GrpcTransport(GrpcSettings(**settings))
        case {"transport": "rocketmq4", "settings": settings}:
            from service.adapters.rocketmq.classic.settings import ClassicSettings
            from service.adapters.rocketmq.classic.transport import ClassicTransport

            return ClassicTransport(ClassicSettings(**settings))
        case _:
            raise ValueError(spec)


def die() -> NoReturn:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


async def check_back(_: CheckRequest) -> Verdict:
    return Verdict.UNKNOWN


async def after_half(transport: Transport, topic: str, _group: str, key: str) -> None:
    async def decide() -> Verdict:
        die()

    producer = await transport.producer(topic, check_back)
    await producer.transact(OutgoingMessage(topic=topic, key=key, body=b"half"), decide)


async def after_commit(transport: Transport, topic: str, _group: str, key: str) -> None:
    async def decide() -> Verdict:
        return Verdict.COMMIT

    producer = await transport.producer(topic, check_back)
    await producer.transact(OutgoingMessage(topic=topic, key=key, body=b"committed"), decide)
    die()


async def before_settle(transport: Transport, topic: str, group: str, _key: str) -> None:
    consumer = await transport.consumer(topic, group, invisible_s=1.0)
    while not (held := await consumer.receive(1, 1.0)):
        pass
    print(held[0].key, held[0].attempt)
    die()


POINTS: dict[str, Callable[[Transport, str, str, str], Awaitable[None]]] = {
    "after_half": after_half,
    "after_commit": after_commit,
    "before_settle": before_settle,
}


async def main(spec: str, point: str, topic: str, group: str, key: str) -> None:
    transport = open_transport(spec)
    await transport.start()
    await POINTS[point](transport, topic, group, key)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
