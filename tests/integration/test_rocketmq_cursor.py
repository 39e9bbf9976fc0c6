"""How far what the broker put aside is dealt with, on the real broker: any topic of one queue will do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from uuid import uuid4

import pytest

from service.adapters.rocketmq.admin.cursor import TopicCursor
from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.adapters.rocketmq.remoting.queues import PULL_MAX, BrokerQueues
from service.ports.messaging import TopicType
from tests.contract.messaging_stage import eventually
from tests.fixtures.rocketmq_messages import send
from tests.servers.rocketmq import RocketMQ

PATIENT_S = 15.0
ALL = 1000

MakeCursor = Callable[..., TopicCursor]


def is_ours(message: StoredMessage) -> bool:
    return message.body.startswith(b"ours")


class Aside:
    """A topic of the test's own, and cursors over it as several processes have them: of one group."""

    def __init__(self, client: RemotingClient, rocketmq: RocketMQ) -> None:
        self._client = client
        self._cluster = Cluster(client, rocketmq.name_server)
        self._queues = BrokerQueues(client, rocketmq.broker)
        self.name = f"aside-{uuid4().hex[:12]}"

    async def put(self, *bodies: str) -> None:
        await BrokerAdmin(self._client, self._queues.address).create_topic(self.name, TopicType.NORMAL, queues=1)
        for body in bodies:
            await send(self._client, self._queues.address, self.name, body.encode())

        async def are_filed() -> bool:
            """The broker files a message into its queue after it has taken it."""
            return (await self._queues.offsets(self.name, 0)).end >= len(bodies)

        await eventually(are_filed, PATIENT_S)

    def cursor(self, *, scan_max: int = ALL) -> TopicCursor:
        return TopicCursor(
            self._client,
            self._cluster,
            topic=self.name,
            group=self.name,
            scan_max=scan_max,
            is_ours=is_ours,
        )

    async def offset(self) -> int | None:
        return await self._queues.consumer_offset(self.name, self.name, 0)


@pytest.fixture(scope="module")
def rocketmq(rocketmq_quick: RocketMQ) -> RocketMQ:
    """Any will do, so the one that others use too."""
    return rocketmq_quick


@pytest.fixture
async def aside(rocketmq: RocketMQ) -> AsyncIterator[Aside]:
    client = RemotingClient(RemotingOptions(timeout_s=PATIENT_S))
    yield Aside(client, rocketmq)
    await client.close()


def bodies(messages: Sequence[StoredMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


async def test_a_topic_that_is_not_there_yet_has_nothing(aside: Aside) -> None:
    cursor = aside.cursor()
    assert await cursor.open(ALL) == []
    assert await cursor.find("00" * 16) is None
    await cursor.done("00" * 16)


async def test_others_messages_never_fill_the_scan(aside: Aside) -> None:
    await aside.put(*(f"theirs-{n}" for n in range(2 * PULL_MAX)), "ours")
    cursor = aside.cursor(scan_max=PULL_MAX)
    assert [bodies(await cursor.open(ALL)) for _ in range(3)] == [[], [], ["ours"]]
    assert await aside.offset() == 2 * PULL_MAX


async def test_no_more_are_found_than_asked_for_and_the_oldest_come_first(aside: Aside) -> None:
    await aside.put("theirs", *(f"ours-{n}" for n in range(5)))
    assert bodies(await aside.cursor().open(2)) == ["ours-0", "ours-1"]
    assert await aside.offset() == 1


async def test_one_that_stays_hides_no_other_and_what_is_done_behind_it_is_remembered_here_alone(aside: Aside) -> None:
    await aside.put("ours-stuck", "theirs", "ours-1", "ours-2")
    here, elsewhere = aside.cursor(), aside.cursor()
    stuck, first, second = await here.open(ALL)
    await here.done(first.physical_id)
    assert bodies(await here.open(ALL)) == ["ours-stuck", "ours-2"]
    assert await here.find(first.physical_id) is None
    assert await aside.offset() is None
    assert await elsewhere.find(first.physical_id) == first
    await here.done(second.physical_id)
    await here.done(stuck.physical_id)
    assert await aside.offset() == 4
    for cursor in (here, elsewhere, aside.cursor()):
        assert await cursor.open(ALL) == []


async def test_what_another_process_has_passed_is_not_remembered_for_ever(aside: Aside) -> None:
    await aside.put("ours-0", "ours-1")
    here, elsewhere = aside.cursor(), aside.cursor()
    first, second = await here.open(ALL)
    await here.done(second.physical_id)
    await elsewhere.done(first.physical_id)
    await elsewhere.done(second.physical_id)
    assert await here.open(ALL) == []
    assert not any(here._done.values())


@pytest.mark.parametrize("seed", range(3))
async def test_whoever_is_done_with_whichever_first_all_are_dealt_with_and_none_is_skipped(
    aside: Aside, seed: int
) -> None:
    await aside.put(*(f"ours-{n}" for n in range(20)))
    chance = random.Random(seed)
    here, elsewhere = aside.cursor(), aside.cursor()
    messages = list(await here.open(ALL))
    kept = messages.pop(chance.randrange(10, 20))
    chance.shuffle(messages)
    await asyncio.gather(*(cursor.done(it.physical_id) for it in messages for cursor in (here, elsewhere)))
    for cursor in (here, elsewhere, aside.cursor()):
        assert kept in await cursor.open(ALL)
    await here.done(kept.physical_id)
    for cursor in (here, elsewhere, aside.cursor()):
        assert await cursor.open(ALL) == []
    assert await aside.offset() == 20
