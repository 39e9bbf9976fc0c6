"""A process on a shared broker file: `python -m tests.integration.embedded_worker FOLDER NAME SEND`.

Transacts SEND messages and consumes with the others until its standard input ends. One line of output for each step.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.transport import EmbeddedTransport
from service.adapters.system_clock import SystemClock
from service.domain.check_back import Verdict
from service.ports.messaging import (
    CheckRequest,
    Consumer,
    Done,
    OutgoingMessage,
    Topic,
    TopicType,
    TransactionalProducer,
)

ORDERS = Topic(name="orders", type=TopicType.TRANSACTION, group="readers", max_attempts=1000)
INVISIBLE_S = 5.0
SENDERS = 8


def say(*words: object) -> None:
    print(*words, flush=True)


async def commit() -> Verdict:
    return Verdict.COMMIT


async def check_back(_: CheckRequest) -> Verdict:
    return Verdict.COMMIT


async def send(producer: TransactionalProducer, keys: Iterator[str]) -> None:
    for key in keys:
        await producer.transact(OutgoingMessage(topic=ORDERS.name, key=key, body=b"x" * 500), commit)
        say("sent", key)


async def consume(consumer: Consumer, until: asyncio.Event) -> None:
    while not until.is_set():
        for delivery in await consumer.receive(16, 0.5):
            say("got", delivery.key, delivery.attempt, time.monotonic())
            await consumer.settle(delivery, Done())


async def main(folder: str, name: str, count: str) -> None:
    transport = EmbeddedTransport(Path(folder), SystemClock(), EmbeddedSettings())
    await transport.start()
    await transport.create_topics([ORDERS])
    producer = await transport.producer(ORDERS.name, check_back)
    consumer = await transport.consumer(ORDERS.name, ORDERS.group or "", invisible_s=INVISIBLE_S)
    say("ready")
    over = asyncio.Event()
    keys = iter([f"{name}-{n}" for n in range(int(count))])
    consuming = asyncio.create_task(consume(consumer, over))
    await asyncio.gather(*(send(producer, keys) for _ in range(SENDERS)))
    say("all-sent")
    await asyncio.to_thread(sys.stdin.read)
    over.set()
    await consuming
    await transport.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
