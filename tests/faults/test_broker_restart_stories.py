"""The broker, and the proxy in the same process, are killed and started again while it sells: nobody helps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count

import pytest

from service.domain.ids import ReservationId
from tests.fixtures.fleet import Fleet
from tests.fixtures.shop import id_of
from tests.fixtures.sql import rules
from tests.fixtures.stacks import Servers, on_real_servers
from tests.fixtures.stage import SALE, Process, Stage, counted, until
from tests.fixtures.victim import Seam
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import QUICK, RocketMQ

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.rocketmq,
    pytest.mark.timeout(600),
]

RESTARTS = 2
BACK_WITHIN_S = 20.0
"""Of the broker's readiness: the next order made of a message, and the next question answered."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketMQ]:
    with ExitStack() as stack:
        broker = RocketMQ(QUICK)
        stack.callback(broker.stop)
        broker.start()
        yield broker


@pytest.fixture
def servers(broker: RocketMQ, mariadb: MariaDB, redis7: Redis, migrated_mysql: str) -> Servers:
    return on_real_servers(broker, mariadb, redis7, migrated_mysql)


class Load:
    """A new buyer as soon as the one before has heard, until it is stopped."""

    def __init__(self, stage: Stage, at: Process) -> None:
        self._stage, self._at = stage, at
        self._stop = asyncio.Event()
        self.winners = 0
        self.refused = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        for number in count():
            if self._stop.is_set():
                return
            heard = await self._stage.reserve(f"load-{number}", at=self._at)
            assert heard.is_live or heard.is_unknown, heard
            self.winners += heard.is_live
            self.refused += heard.is_unknown
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._stop.set()
        await self._task


async def test_a_broker_that_is_killed_under_load_is_used_again_within_seconds_of_its_return(
    stage: Stage, fleet: Fleet, broker: RocketMQ
) -> None:
    """F07, twice, and directly after each return a reservation in doubt: its process is killed between Lua
    and COMMIT. No sweep makes orders here, messages do."""
    stage.settings = stage.settings.model_copy(update={"sweep_after_s": 600.0})
    victims = [fleet.api(f"victim-{number}", trap=Seam.DEDUCTED) for number in range(RESTARTS)]
    seller = await stage.process("order", "timeout", "keeper")
    await stage.sale(rules(stock=100_000))
    shops = await fleet.start(*victims)
    load = Load(stage, seller)
    consumed, answered = list[float](), list[float]()
    for number, (victim, shop) in enumerate(zip(victims, shops, strict=True)):
        await until(partial(consumes, stage, counted_orders(stage)), "it sells, and makes orders")
        before = counted_orders(stage)
        broker.broker_process.kill()
        await asyncio.to_thread(broker.start_broker)
        ready_s = time.monotonic()
        consuming = asyncio.create_task(makes_orders_again(stage, before))
        await fleet.fall(victim, shop, f"doubt-{number}")
        await fleet.kill(victim)
        await stage.becomes(ReservationId(id_of(SALE, f"doubt-{number}")), "awaiting_payment")
        answered.append(time.monotonic() - ready_s)
        consumed.append(await consuming - ready_s)
    await load.stop()
    print(f"orders {seconds(consumed)} after the broker's return, answers {seconds(answered)}")
    print(f"{load.winners} reservations, {load.refused} refusals")
    assert max(consumed + answered) < BACK_WITHIN_S
    assert load.refused
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == load.winners + RESTARTS


async def makes_orders_again(stage: Stage, before: float) -> float:
    """When it does."""
    await until(partial(consumes, stage, before), "it makes orders again")
    return time.monotonic()


def counted_orders(stage: Stage) -> float:
    return counted("dropgate_messages_total", group=stage.topics.order.group or "", outcome="done")


async def consumes(stage: Stage, before: float) -> bool:
    return counted_orders(stage) > before


def seconds(times_s: list[float]) -> str:
    return f"{', '.join(f'{it:.1f}' for it in times_s)} s"
