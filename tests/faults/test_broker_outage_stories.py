"""The way to RocketMQ is away, silent, lossy, and back: what buyers hear, what Redis shows, when selling goes on."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable

import pytest

from service.adapters.rocketmq.grpc.link import Link
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.batch import encode
from service.domain.ids import BuyerId, reservation_id
from service.ports.messaging import TopicType
from tests.fixtures.broker_way import bend, drop_ends, url_of
from tests.fixtures.clients import reserved
from tests.fixtures.proxy import ALWAYS, TcpProxy
from tests.fixtures.rocketmq_messages import send
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_REAL_SERVERS
from tests.fixtures.stage import SALE, Stage, counted, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, ON_REAL_SERVERS]

BUDGET_S = GrpcSettings.call_timeout_s + 2.0
"""Of a reservation whose half message has no answer: all its attempts together, and the rest of it."""
RESUMED_WITHIN_S = 20.0
"""Of the end of a black hole, with nobody's help."""
HOLE_S = 12.0
"""A client is given up in it, and the first attempts to replace it fail."""
BUYERS = 240
LAST_SUCCESS = "dropgate_loop_last_success_timestamp_seconds"
PROBED_S = 3.0
"""A probe's period, and a little."""
CHECKS = "dropgate_check_backs_total"


@pytest.fixture
def way(stage: Stage, make_proxy: Callable[[str], TcpProxy], monkeypatch: pytest.MonkeyPatch) -> TcpProxy:
    """To the broker, for a process whose `broker_url` it is."""
    assert stage.servers.rocketmq is not None
    proxy = make_proxy(stage.servers.rocketmq.proxy)
    bend(proxy, monkeypatch)
    return proxy


async def keyspace(stage: Stage) -> dict[bytes, bytes]:
    """Every key with its value, as Redis would move it elsewhere."""

    def look() -> dict[bytes, bytes]:
        return {key: stage.server.call("DUMP", key) for key in stage.server.call("KEYS", "*")}

    return await asyncio.to_thread(look)


# --- F12: half messages and their ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["refuse", "swallow"])
async def test_a_broker_that_is_away_costs_a_quick_503_and_touches_no_stock(
    stage: Stage, way: TcpProxy, fault: str
) -> None:
    """F12: no half receipt, no deduction; also where it accepts the connection and says nothing."""
    await stage.process("order", "keeper", lanes=16, broker_url=url_of(way))
    await stage.sale()
    await reserved(stage, "before")
    await stage.quiet()
    before = await keyspace(stage)
    getattr(way, fault)()
    began_s = time.monotonic()
    heard = await asyncio.gather(*[stage.reserve(f"b-{number}") for number in range(20)])
    took_s = time.monotonic() - began_s
    print(f"20 refusals after {took_s:.1f} s")
    assert {it.code for it in heard} <= {"unavailable", "too_busy"}, "who waits too long behind them is not even tried"
    assert took_s < BUDGET_S
    assert await keyspace(stage) == before
    way.heal()
    await reserved(stage, "b-0")
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == 2


async def test_a_half_message_whose_receipt_is_lost_is_rolled_back_and_the_same_key_wins_later(
    stage: Stage, way: TcpProxy
) -> None:
    """F12: the broker has it, perhaps several times; its sender does not know. The check-back fences the batch."""
    await stage.process("order", "keeper", broker_url=url_of(way))
    await stage.sale()
    rolled_back = counted(CHECKS, verdict="rollback")
    way.cut_replies(ALWAYS, of=b"anna")
    lost = await stage.reserve("anna")
    assert lost.code == "unavailable"
    assert way.cut_count > 0
    way.heal()
    assert (await stage.slot()).held == 0

    async def is_rolled_back() -> bool:
        return counted(CHECKS, verdict="rollback") > rolled_back and (await stage.backlog()).halves == 0

    await until(is_rolled_back, "the check-back has rolled it back")
    anna = await reserved(stage, "anna")
    assert anna.id == reservation_id(SALE, BuyerId("anna"), "k")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == 1


async def test_of_hundreds_of_ends_three_in_ten_are_lost_and_every_order_appears(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F12: requests or only their answers; no half message is left that the broker would store again and again."""
    stage.settings = stage.settings.model_copy(update={"batch_max": 2})
    await stage.process("order", "keeper", lanes=16)
    await stage.sale(rules(stock=BUYERS))
    chance, waiting = random.Random(12), asyncio.Semaphore(60)
    drop_ends(monkeypatch, lambda: chance.random() < 0.15)
    drop_ends(monkeypatch, lambda: chance.random() < 0.18, arrives=True)

    async def buy(number: int) -> None:
        async with waiting:
            await reserved(stage, f"b-{number}")

    await asyncio.gather(*map(buy, range(BUYERS)))
    await stage.quiet()
    ledger = await stage.ledger()
    assert (ledger.sql.awaiting_payment, ledger.sql.available) == (BUYERS, 0)
    assert (await stage.backlog()).halves == 0


# --- F47: consumption goes on -----------------------------------------------------------------------------------------


async def test_a_consumer_in_a_black_hole_goes_on_once_it_heals(stage: Stage, way: TcpProxy) -> None:
    """F47: longer than a client takes to be given up, so that attempts to replace it fail too. Nobody helps, no message
    has its effect twice, and what was tried in vain leaves nothing behind."""
    stage.settings = stage.settings.model_copy(update={"sweep_after_s": 600.0})
    await stage.process("keeper")
    await stage.process("order", "timeout", broker_url=url_of(way))
    await stage.sale(rules(stock=20))
    before = [await reserved(stage, f"before-{number}") for number in range(5)]
    for it in before:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    clients = clients_of_the_broker()
    way.swallow()
    hole_s = time.monotonic()
    heard = [await reserved(stage, f"meanwhile-{number}") for number in range(10)]
    await asyncio.sleep(HOLE_S - (time.monotonic() - hole_s))
    assert {it.code for it in [await stage.get(it.reservation_id) for it in heard]} == {"queued"}
    stale_s = time.time() - counted(LAST_SUCCESS, loop=stage.topics.order.group or "")
    assert stale_s > HOLE_S - GrpcSettings.deaf_after_s - PROBED_S, "an alarm can see it"
    way.heal()
    healed_s = time.monotonic()
    for it in heard:
        await stage.becomes(it.reservation_id, "awaiting_payment")
    waited_s = time.monotonic() - healed_s
    print(f"consumes {waited_s:.1f} s after the hole")
    assert waited_s < RESUMED_WITHIN_S
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == 15
    await until(lambda: are_at_most(clients), "the clients that were tried in vain are gone")


def clients_of_the_broker() -> tuple[int, int]:
    """Objects, and threads."""
    gc.collect()
    links = sum(isinstance(it, Link) for it in gc.get_objects())
    return links, sum("sched" in it.name or "rocketmq5" in it.name for it in threading.enumerate())


async def are_at_most(clients: tuple[int, int]) -> bool:
    return all(now <= before for now, before in zip(clients_of_the_broker(), clients, strict=True))


async def test_queues_that_are_added_in_mid_run_are_read_too(stage: Stage) -> None:
    """F47: from four to eight."""
    assert stage.servers.rocketmq is not None
    broker, topic, group = stage.servers.rocketmq.broker, stage.topics.order.name, stage.topics.order.group or ""
    client = RemotingClient()
    admin, queues = BrokerAdmin(client, broker), BrokerQueues(client, broker)
    await admin.create_topic(topic, TopicType.TRANSACTION, queues=4)
    process = await stage.process("keeper")
    await stage.sale()
    anna = await reserved(stage, "anna")
    (batch,) = await stage.undelivered()
    process.start("order")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await admin.create_topic(topic, TopicType.TRANSACTION, queues=8)
    for queue in range(4, 8):
        await send(client, broker, topic, encode(batch), queue=queue)

    async def all_read() -> bool:
        return all([await queues.consumer_offset(group, topic, queue) == 1 for queue in range(4, 8)])

    await until(all_read, "the group has read what is in the new queues")
    await reserved(stage, "bert")
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == 2
    await client.close()
