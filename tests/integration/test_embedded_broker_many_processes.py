"""Several processes on one broker file, as `serve`, `consume` and `keeper` are; some of them are killed."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.transport import EmbeddedTransport
from service.adapters.system_clock import SystemClock
from service.domain.check_back import Verdict
from service.ports.messaging import CheckRequest, Done, OutgoingMessage
from tests.contract.messaging_stage import KILLED, eventually
from tests.integration.embedded_worker import ORDERS

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 2000
SEED = 20


async def start_worker(folder: Path, name: str, count: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.embedded_worker",
        *(str(folder), name, str(count)),
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
    )


async def lines_of(worker: Process) -> AsyncIterator[list[str]]:
    assert worker.stdout is not None
    async for line in worker.stdout:
        yield line.decode().split()


async def killed_after(worker: Process, lines: int) -> list[tuple[str, str]]:
    """Kill it when it has printed this many lines; all it printed, as (sent | got, key)."""
    printed: list[tuple[str, str]] = []
    async for line in lines_of(worker):
        lines -= 1
        if lines == 0:
            worker.kill()
        # The last line may be cut off.
        if (line[0], len(line)) in {("sent", 2), ("got", 4)}:
            printed.append((line[0], line[1]))
    assert await worker.wait() == KILLED
    return printed


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[EmbeddedTransport]:
    transport = EmbeddedTransport(tmp_path, SystemClock(), EmbeddedSettings(transaction_timeout_s=0.5))
    await transport.start()
    await transport.create_topics([ORDERS])
    yield transport
    await transport.close()


async def settled(transport: EmbeddedTransport) -> bool:
    counts = await transport.counts()
    return counts.halves == 0 and not counts.undelivered


@pytest.mark.slow
async def test_three_processes_share_a_file_and_every_message_is_delivered_once(
    tmp_path: Path, transport: EmbeddedTransport
) -> None:
    shares = (667, 667, 666)
    workers = [await start_worker(tmp_path, f"w{n}", share) for n, share in enumerate(shares)]
    sent: set[str] = set()
    got: Counter[str] = Counter()
    by_worker = [0] * len(workers)
    finished = 0

    async def listen(n: int) -> None:
        nonlocal finished
        async for line in lines_of(workers[n]):
            match line:
                case ["sent", key]:
                    sent.add(key)
                case ["got", key, attempt, _]:
                    got[key] += 1
                    by_worker[n] += 1
                    assert attempt == "1"
                case ["all-sent"]:
                    finished += 1
                case _:
                    assert line == ["ready"]

    listening = [asyncio.create_task(listen(n)) for n in range(len(workers))]
    await eventually(lambda: finished == len(workers), 45)
    await eventually(lambda: settled(transport), 10)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
    await asyncio.gather(*listening)
    assert [await worker.wait() for worker in workers] == [0, 0, 0]

    assert len(sent) == MESSAGES
    assert got == Counter(sent), "each message exactly once: none needed its invisible time"
    assert min(by_worker) > 0, f"one process starved: {by_worker}"


@pytest.mark.slow
@pytest.mark.faults
async def test_processes_killed_in_the_middle_lose_nothing_that_was_acknowledged(
    tmp_path: Path, transport: EmbeddedTransport
) -> None:
    dice = random.Random(SEED)
    acknowledged: set[str] = set()
    got: set[str] = set()
    for n in range(5):
        victim = await start_worker(tmp_path, f"victim{n}", 100_000)
        for word, key in await killed_after(victim, dice.randrange(5, 400)):
            (acknowledged if word == "sent" else got).add(key)

    async def check_back(_: CheckRequest) -> Verdict:
        return Verdict.ROLLBACK

    await transport.producer(ORDERS.name, check_back)
    consumer = await transport.consumer(ORDERS.name, ORDERS.group or "", invisible_s=30)
    async with asyncio.timeout(40):
        while not await settled(transport):
            for delivery in await consumer.receive(64, 0.5):
                got.add(delivery.key)
                await consumer.settle(delivery, Done())
    assert acknowledged
    assert acknowledged <= got, f"lost (seed {SEED}): {sorted(acknowledged - got)[:5]}"


async def test_two_processes_never_answer_the_same_question(tmp_path: Path) -> None:
    settings = EmbeddedSettings(
        transaction_timeout_s=0.1, check_interval_s=0.2, check_deadline_s=0.1, check_max=3, check_poll_s=0.01
    )
    asked: Counter[tuple[str, int]] = Counter()

    async def check_back(request: CheckRequest) -> Verdict:
        asked[request.key, request.check] += 1
        return Verdict.UNKNOWN

    async def decide() -> Verdict:
        return Verdict.UNKNOWN

    transports = [EmbeddedTransport(tmp_path, SystemClock(), settings) for _ in range(2)]
    for transport in transports:
        await transport.start()
        await transport.create_topics([ORDERS])
    producers = [await transport.producer(ORDERS.name, check_back) for transport in transports]
    keys = [f"doubt-{n}" for n in range(30)]
    for key in keys:
        await producers[0].transact(OutgoingMessage(topic=ORDERS.name, key=key, body=b""), decide)

    async def all_discarded() -> bool:
        return (await transports[0].counts()).discarded == len(keys)

    await eventually(all_discarded, 20)
    for transport in transports:
        await transport.close()
    assert asked == Counter((key, check) for key in keys for check in (1, 2, 3))
