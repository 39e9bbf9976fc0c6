"""`dropgate consume` where the broker cannot serve it: on-call reads why; once it is mended orders are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.bootstrap import create_topics
from service.domain.errors import BrokerRefused
from tests.fixtures.broker_way import url_of
from tests.fixtures.clients import reserved
from tests.fixtures.fleet import Fleet
from tests.fixtures.processes import Process as OsProcess
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_REAL_SERVERS
from tests.fixtures.stage import Process, Stage, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, ON_REAL_SERVERS]

SAYS_WHY_WITHIN_S = GrpcSettings.start_timeout_s + 2.0
"""Of its start: the deadline of a client's start, and what a process needs to come up."""
PATIENCE_S = 20.0
WORKS = "Orders are being made."


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A consumer whose broker is out of order, and a process that sells to its topics all the same."""

    consumer: OsProcess
    says: str
    """In its log."""
    seller: Process
    mend: Callable[[], Awaitable[object]]


async def test_a_broker_that_exports_no_metrics_is_consumed_from(stage: Stage) -> None:
    """F45 (a): clients of this protocol have waited for ever for the metrics that it does not name."""
    assert stage.servers.rocketmq is not None
    client = RemotingClient()
    config = await BrokerAdmin(client, stage.servers.rocketmq.broker).config()
    await client.close()
    assert config["metricsExporterType"] == "DISABLE"
    await stage.process("order", "keeper")
    await stage.sale()
    anna = await reserved(stage, "anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await stage.quiet()


async def test_a_consumer_that_cannot_begin_says_why_and_begins_once_it_can(
    stage: Stage, fleet: Fleet, make_proxy: Callable[[str], TcpProxy]
) -> None:
    """F45 (b)-(d), side by side: nobody there, no such topic, and a proxy that accepts and says nothing."""
    stage.settings = stage.settings.model_copy(update={"sweep_after_s": 600.0})
    await stage.process("keeper", registered=False)
    await stage.sale(rules(stock=10))
    assert stage.servers.rocketmq is not None
    refusing, silent = make_proxy(stage.servers.rocketmq.proxy), make_proxy(stage.servers.rocketmq.proxy)
    refusing.refuse()
    silent.swallow()
    broken = [
        await behind(refusing, "failed to connect to all addresses", stage, fleet),
        await behind(silent, "Deadline Exceeded", stage, fleet),
        await without_topics(stage, fleet),
    ]
    began_s = time.monotonic()
    for it in broken:
        it.consumer.launch()
    await asyncio.gather(*map(says_why, broken))
    print(f"all have said why after {time.monotonic() - began_s:.1f} s")
    await asyncio.gather(*(it.mend() for it in broken))
    mended_s = time.monotonic()
    for number, it in enumerate(broken):
        await works(stage, number, it)
    print(f"all work {time.monotonic() - mended_s:.1f} s after they were mended")
    await stage.quiet()


async def behind(way: TcpProxy, says: str, stage: Stage, fleet: Fleet) -> Broken:
    """The way of its consumer to the broker is out of order, and not that of its seller."""
    prefix = f"{stage.settings.topic_prefix}-{way.port}"
    await create_topics(stage.settings.model_copy(update={"topic_prefix": prefix}))
    return Broken(
        consumer=fleet.consumer(f"at-{way.port}", "order", broker_url=url_of(way), topic_prefix=prefix),
        says=says,
        seller=await stage.process(topic_prefix=prefix),
        mend=lambda: asyncio.to_thread(way.heal),
    )


async def without_topics(stage: Stage, fleet: Fleet) -> Broken:
    prefix = f"{stage.settings.topic_prefix}-missing"
    return Broken(
        consumer=fleet.consumer("missing", "order", topic_prefix=prefix),
        says="no such topic: `dropgate topics create` makes it",
        seller=await stage.process(registered=False, topic_prefix=prefix),
        mend=lambda: create_topics(stage.settings.model_copy(update={"topic_prefix": prefix})),
    )


async def says_why(broken: Broken) -> None:
    process = broken.consumer

    async def said() -> bool:
        assert process.is_running(), process.log_end()
        return process.said('"action": "loop_failed"') and process.said(broken.says)

    await until(said, f"{process.log.stem} says why", SAYS_WHY_WITHIN_S + PATIENCE_S)
    assert not process.said(WORKS)


async def works(stage: Stage, number: int, broken: Broken) -> None:
    """A message in its topic becomes an order."""
    await until(lambda: is_registered(broken.seller), "the name server has told the proxy of the topic")
    buyer = await reserved(stage, f"buyer-{number}", at=broken.seller)
    await stage.becomes(buyer.reservation_id, "awaiting_payment")
    assert broken.consumer.said(WORKS)


async def is_registered(process: Process) -> bool:
    with suppress(BrokerRefused):
        await process.cases.producer.turn()
    return process.cases.producer.is_registered
