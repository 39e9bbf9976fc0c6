"""The consumers of docs/topics.md, as they stand on the page: an order service in a process of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.bootstrap import Part, check_topics, create_topics, run
from service.domain.errors import InvalidRequest
from tests.fixtures.processes import ROOT, Process
from tests.fixtures.stacks import REAL
from tests.fixtures.stage import Stage, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GROUP = "order-service"
HELD_S = 30
"""On the page. An event that was held when its consumer was killed comes again after it."""


def on_page(transport: str) -> str:
    text = (ROOT / "docs" / "topics.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"<!-- consumer: {transport} -->\n+```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.fixture
def order_service(stage: Stage, home: Path, care_for: Callable[[Process], Process]) -> Callable[[], Process]:
    """Its name, topic and group are its deployment's."""
    rocketmq = stage.servers.rocketmq
    code = on_page("embedded" if rocketmq is None else "rocketmq")
    (home / "order_service.py").write_text(code.replace("dropgate-order-events", stage.topics.events.name))
    (home / ".dropgate").symlink_to(stage.folder)
    address = [] if rocketmq is None else [rocketmq.proxy]

    def make() -> Process:
        return care_for(Process(home, "order-service", "order_service", *address))

    return make


@pytest.mark.parametrize("servers", ["embedded", REAL], indirect=True)
async def test_the_order_service_of_the_page_acts_once_on_each_event_and_in_order(
    stage: Stage, order_service: Callable[[], Process]
) -> None:
    assert await create_topics(stage.settings, events_group=GROUP) == [f"group {GROUP}"]
    assert await create_topics(stage.settings, events_group=GROUP) == []
    assert await check_topics(stage.settings, events_group=GROUP) == []
    stop = asyncio.Event()
    relay = asyncio.create_task(run(stage.settings, frozenset({Part.EVENTS}), stop=stop))
    await stage.process("keeper", "order")
    await stage.sale()

    anna, bert = await stage.reserve("anna"), await stage.reserve("bert")
    for buyer in (anna, bert):
        await stage.becomes(buyer.reservation_id, "awaiting_payment")
    await stage.pay(anna.reservation_id)
    await stage.cancel(bert.reservation_id)

    service = order_service()
    expected = {
        f"order.created {anna.reservation_id}",
        f"order.paid {anna.reservation_id}",
        f"order.created {bert.reservation_id}",
        f"order.cancelled {bert.reservation_id}",
    }

    async def has_told_all() -> bool:
        return expected <= set(told(service))

    service.launch()
    await until(has_told_all, "the order service has told of each event", HELD_S)
    service.kill()
    assert len(told(service)) == len(expected)
    for first, then in (("created", "paid"), ("created", "cancelled")):
        buyer = anna if then == "paid" else bert
        order = [line.split()[0] for line in told(service) if buyer.reservation_id in line]
        assert order == [f"order.{first}", f"order.{then}"]
    stop.set()
    assert await relay == 0
    await stage.quiet()


@pytest.mark.parametrize("servers", [REAL], indirect=True)
async def test_a_group_that_reads_in_any_order_is_found_and_mended(stage: Stage) -> None:
    """Made by hand, as one makes groups."""
    rocketmq = stage.servers.rocketmq
    assert rocketmq is not None
    async with closing_client() as client:
        await BrokerAdmin(client, rocketmq.broker).create_group("by-hand", retry_max=7)
    (problem,) = await check_topics(stage.settings, events_group="by-hand")
    assert "group by-hand" in problem
    assert "in any order" in problem
    assert "--events-group by-hand" in problem
    assert await create_topics(stage.settings, events_group="by-hand") == ["group by-hand"]
    assert await check_topics(stage.settings, events_group="by-hand") == []
    async with closing_client() as client:
        by_hand = (await BrokerAdmin(client, rocketmq.broker).groups())["by-hand"]
    assert (by_hand.retry_max, by_hand.orderly) == (7, True)


@pytest.mark.parametrize(
    "group", ["dropgate-order-creator", "dropgate-discarded", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"]
)
async def test_a_group_of_our_own_or_of_rocketmqs_is_no_order_services(stage: Stage, group: str) -> None:
    for look in (create_topics, check_topics):
        with pytest.raises(InvalidRequest, match="own"):
            await look(stage.settings, events_group=group)
    assert await check_topics(stage.settings) == []


@asynccontextmanager
async def closing_client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient(RemotingOptions())
    yield client
    await client.close()


def told(service: Process) -> list[str]:
    """What it printed: type and reservation."""
    lines = service.log.read_text().splitlines() if service.log.exists() else []
    return [" ".join(line.split()[:2]) for line in lines if line.startswith("order.")]
