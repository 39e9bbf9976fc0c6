"""The remoting client against the real broker."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.cluster import DISCARDED_TOPIC, Cluster
from service.adapters.rocketmq.remoting.codes import RequestCode
from service.adapters.rocketmq.remoting.frames import Request
from service.adapters.rocketmq.remoting.messages import COMPRESSED, StoredMessage, parse_physical_id, physical_id
from service.adapters.rocketmq.remoting.queues import BrokerQueues, Pulled
from service.adapters.rocketmq.remoting.routes import NameServers
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import TopicType
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.rocketmq_messages import send, send_half
from tests.servers.rocketmq import BROKER, CLUSTER, PROBE_TOPIC, RocketMQ

PATIENT_S = 15.0
"""For a busy machine; nothing here is expected to take it."""
QUEUES = 3


@pytest.fixture(scope="module")
def rocketmq(rocketmq_quick: RocketMQ) -> RocketMQ:
    """Any will do, so the one that others use too."""
    return rocketmq_quick


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient(RemotingOptions(timeout_s=PATIENT_S))
    yield client
    await client.close()


@pytest.fixture
def admin(client: RemotingClient, rocketmq: RocketMQ) -> BrokerAdmin:
    return BrokerAdmin(client, rocketmq.broker)


@pytest.fixture
def queues(client: RemotingClient, rocketmq: RocketMQ) -> BrokerQueues:
    return BrokerQueues(client, rocketmq.broker)


@pytest.fixture
def cluster(client: RemotingClient, rocketmq: RocketMQ) -> Cluster:
    return Cluster(client, rocketmq.name_server)


@pytest.fixture
async def topic(admin: BrokerAdmin) -> str:
    """A plain one of a test's own."""
    name = f"remoting-{uuid4().hex[:12]}"
    await admin.create_topic(name, TopicType.NORMAL, queues=QUEUES)
    return name


# --- topics, groups, settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", list(TopicType))
async def test_a_topic_of_each_type_is_made_and_read_back(admin: BrokerAdmin, type_: TopicType) -> None:
    name = f"of-type-{type_.value.lower()}"
    for _ in range(2):  # making it again changes nothing
        await admin.create_topic(name, type_, queues=5)
    found = (await admin.topics())[name]
    assert (found.type, found.read_queues, found.write_queues, found.permissions) == (type_.value, 5, 5, 6)


async def test_the_brokers_own_topics_have_no_type(admin: BrokerAdmin) -> None:
    assert (await admin.topics())["SELF_TEST_TOPIC"].type == "UNSPECIFIED"


async def test_making_a_topic_again_with_another_type_changes_it(admin: BrokerAdmin, topic: str) -> None:
    """So a caller must look first: a NORMAL topic full of messages would silently become a TRANSACTION one."""
    await admin.create_topic(topic, TopicType.TRANSACTION, queues=QUEUES)
    assert (await admin.topics())[topic].type == "TRANSACTION"


async def test_a_name_that_no_topic_may_have_is_refused_in_the_brokers_words(admin: BrokerAdmin) -> None:
    with pytest.raises(BrokerRefused, match="illegal characters"):
        await admin.create_topic("no such name!", TopicType.NORMAL, queues=1)


async def test_a_group_is_made_changed_and_read_back(admin: BrokerAdmin) -> None:
    await admin.create_group("readers", retry_max=100_000)
    found = (await admin.groups())["readers"]
    assert (found.retry_max, found.consume_enabled) == (100_000, True)
    await admin.create_group("readers", retry_max=2)
    assert (await admin.groups())["readers"].retry_max == 2


async def test_a_group_that_is_changed_keeps_what_else_was_set_on_it(
    client: RemotingClient, admin: BrokerAdmin
) -> None:
    theirs = {"groupName": "theirs", "retryMaxTimes": 7, "consumeEnable": True, "retryQueueNums": 3}
    request = Request(code=RequestCode.UPDATE_AND_CREATE_GROUP, body=json.dumps(theirs).encode())
    await client.call(admin.address, request)
    await admin.change_group("theirs", retry_max=7, orderly=True)
    answer = await client.call(admin.address, Request(code=RequestCode.GET_ALL_GROUP_CONFIG))
    found = json.loads(answer.body)["subscriptionGroupTable"]["theirs"]
    assert found["retryQueueNums"] == 3
    assert (found["retryMaxTimes"], found["consumeMessageOrderly"]) == (7, True)
    with pytest.raises(BrokerRefused, match="no group nobodys"):
        await admin.change_group("nobodys", retry_max=1, orderly=False)


async def test_the_brokers_settings_are_read(admin: BrokerAdmin, rocketmq: RocketMQ) -> None:
    config = await admin.config()
    wanted = rocketmq.options.properties()
    assert {name: config[name] for name in wanted} == wanted


async def test_a_client_that_is_gone_is_unregistered(admin: BrokerAdmin) -> None:
    await admin.unregister("127.0.0.1@1#2", producer_group="tests", consumer_group="readers")


# --- routes -----------------------------------------------------------------------------------------------------------


async def test_the_name_server_says_where_a_topic_is(client: RemotingClient, rocketmq: RocketMQ, topic: str) -> None:
    (part,) = await NameServers(client, rocketmq.name_server).route(topic)
    assert (part.cluster, part.broker, part.address) == (CLUSTER, BROKER, rocketmq.broker)
    assert (part.read_queues, part.write_queues) == (QUEUES, QUEUES)


async def test_all_masters_are_found_without_any_topic_of_ours(cluster: Cluster, rocketmq: RocketMQ) -> None:
    assert [broker.address for broker in await cluster.brokers()] == [rocketmq.broker]


async def test_a_topic_that_nobody_has_is_refused(client: RemotingClient, rocketmq: RocketMQ) -> None:
    with pytest.raises(BrokerRefused, match="No topic route info"):
        await NameServers(client, rocketmq.name_server).route("nobody-has-it")


async def test_a_name_server_that_is_away_is_passed_over(client: RemotingClient, rocketmq: RocketMQ) -> None:
    assert await NameServers(client, f"127.0.0.1:9; {rocketmq.name_server}").route(PROBE_TOPIC)
    assert await NameServers(client, f"{rocketmq.name_server};127.0.0.1:9").route(PROBE_TOPIC)


async def test_a_name_server_that_is_silent_costs_the_others_no_time(
    make_proxy: Callable[[str], TcpProxy], client: RemotingClient, rocketmq: RocketMQ
) -> None:
    proxy = make_proxy(rocketmq.name_server)
    proxy.swallow()
    for addresses in (f"{proxy.address};{rocketmq.name_server}", f"{rocketmq.name_server};{proxy.address}"):
        began = time.monotonic()
        assert await NameServers(client, addresses).route(PROBE_TOPIC)
        assert time.monotonic() - began < RemotingOptions().timeout_s / 2


async def pull_all(queues: BrokerQueues, topic: str, queue: int, count: int) -> Pulled:
    """The first `count`, once they are there: the broker files a message into its queue after it has taken it."""
    async with asyncio.timeout(PATIENT_S):
        while len((pulled := await queues.pull(topic, queue, 0, 32)).messages) < count:  # noqa: ASYNC110 - the broker's
            await asyncio.sleep(0.01)
    assert len(pulled.messages) == count
    return pulled


# --- messages and offsets ---------------------------------------------------------------------------------------------


async def test_a_message_is_pulled_and_viewed_by_its_id(
    client: RemotingClient, queues: BrokerQueues, cluster: Cluster, topic: str
) -> None:
    id_ = await send(client, queues.address, topic, b"hello", queue=1, properties={"KEYS": "k-1", "mine": "ä=b"})
    (message,) = (await pull_all(queues, topic, 1, 1)).messages
    assert (message.topic, message.queue_id, message.queue_offset, message.body) == (topic, 1, 0, b"hello")
    assert (message.properties["KEYS"], message.properties["mine"]) == ("k-1", "ä=b")
    assert (message.physical_id, message.store_host) == (id_, queues.address)
    assert (message.born_at_ms, message.reconsumed, message.damage) == (1_800_000_000_000, 0, None)
    assert await cluster.view(id_) == message


async def test_a_compressed_body_is_inflated(client: RemotingClient, queues: BrokerQueues, topic: str) -> None:
    body = b"again and " * 1000
    await send(client, queues.address, topic, zlib.compress(body), flags=COMPRESSED)
    assert [it.body for it in (await pull_all(queues, topic, 0, 1)).messages] == [body]


async def test_a_long_topics_message_is_read(client: RemotingClient, queues: BrokerQueues, admin: BrokerAdmin) -> None:
    topic = "long-" + "x" * 120
    await admin.create_topic(topic, TopicType.NORMAL, queues=1)
    await send(client, queues.address, topic, b"1")
    (message,) = (await pull_all(queues, topic, 0, 1)).messages
    assert message.topic == topic


async def test_a_queue_is_read_to_its_end_in_steps(client: RemotingClient, queues: BrokerQueues, topic: str) -> None:
    for number in range(7):
        await send(client, queues.address, topic, str(number).encode())
    await pull_all(queues, topic, 0, 7)
    found, at = [], 0
    while (pulled := await queues.pull(topic, 0, at, 3)).messages:
        found += [it.body for it in pulled.messages]
        at = pulled.next_offset
    assert found == [str(number).encode() for number in range(7)]
    assert (at, pulled.offsets.first, pulled.offsets.end) == (7, 0, 7)


async def test_an_empty_queue_and_a_place_past_the_end_say_where_to_go_on(
    client: RemotingClient, queues: BrokerQueues, topic: str
) -> None:
    assert (await queues.pull(topic, 2, 0, 5)).messages == []
    await send(client, queues.address, topic, b"1", queue=2)
    await pull_all(queues, topic, 2, 1)
    past = await queues.pull(topic, 2, 1_000, 5)
    assert (past.messages, past.next_offset) == ([], 1)


@pytest.mark.parametrize(("name", "queue"), [("nobody-has-it", 0), (None, 99)])
async def test_what_is_not_there_cannot_be_pulled(
    queues: BrokerQueues, topic: str, name: str | None, queue: int
) -> None:
    with pytest.raises(BrokerRefused):
        await queues.pull(name or topic, queue, 0, 1)


async def test_the_lag_falls_as_the_group_goes_on(
    client: RemotingClient, admin: BrokerAdmin, queues: BrokerQueues, cluster: Cluster, topic: str
) -> None:
    with pytest.raises(BrokerRefused, match="lagging not exist"):
        await queues.set_consumer_offset("lagging", topic, 0, 2)
    await admin.create_group("lagging", retry_max=16)
    for queue in (0, 0, 0, 1, 1):
        await send(client, queues.address, topic, b"x", queue=queue)
    await pull_all(queues, topic, 0, 3)
    await pull_all(queues, topic, 1, 2)
    assert await queues.consumer_offset("lagging", topic, 0) is None
    assert await cluster.lag("lagging", topic) == 5
    await queues.set_consumer_offset("lagging", topic, 0, 2)
    await queues.set_consumer_offset("lagging", topic, 1, 2)
    assert await queues.consumer_offset("lagging", topic, 0) == 2
    assert await cluster.lag("lagging", topic) == 1
    assert (await queues.offsets(topic, 0)).end == 3
    assert (await queues.offsets(topic, 99)).end == 0


async def test_ids_that_name_no_message_of_ours_are_not_followed(
    client: RemotingClient, queues: BrokerQueues, cluster: Cluster, topic: str
) -> None:
    id_ = await send(client, queues.address, topic, b"x" * 500)
    host, offset = parse_physical_id(id_)
    assert await cluster.view(physical_id(host, offset + 4)) is None  # in the middle of it
    assert await cluster.view(physical_id(host, 10**15)) is None
    with pytest.raises(BrokerRefused, match="do not know"):
        await cluster.view(physical_id("127.0.0.1:9", offset))
    with pytest.raises(BrokerRefused, match="no physical message id"):
        await cluster.view("ID-OF-A-CLIENT")


async def test_only_a_discarded_half_message_is_resumed(
    client: RemotingClient, queues: BrokerQueues, cluster: Cluster, topic: str
) -> None:
    id_ = await send(client, queues.address, topic, b"an order, delivered already")
    with pytest.raises(BrokerRefused, match="not the id of a discarded half message"):
        await cluster.resume_check(id_)


@pytest.mark.slow
async def test_a_discarded_half_message_is_found_resumed_and_discarded_again(
    client: RemotingClient, rocketmq_short: RocketMQ
) -> None:
    broker = rocketmq_short.broker
    cluster, queues = Cluster(client, rocketmq_short.name_server), BrokerQueues(client, broker)
    await BrokerAdmin(client, broker).create_topic("in-doubt", TopicType.TRANSACTION, queues=1)
    await send_half(client, broker, "in-doubt", b"a batch", "b-1")

    async def discarded(count: int) -> list[str]:
        """Physical ids, oldest first, once there are so many."""
        async with asyncio.timeout(90):
            while len(found := await discarded_of(queues, "in-doubt")) < count:  # noqa: ASYNC110 - the broker's
                await asyncio.sleep(0.2)
        assert [it.body for it in found] == [b"a batch"] * count
        return [it.physical_id for it in found]

    (first,) = await discarded(1)
    assert (await cluster.resume_check(first)).properties["KEYS"] == "b-1"
    again = await discarded(2)
    assert again[0] == first
    assert again[1] != first
    assert (await queues.pull("in-doubt", 0, 0, 1)).messages == []


async def discarded_of(queues: BrokerQueues, topic: str) -> list[StoredMessage]:
    """Among what other tests have left there."""
    found: list[StoredMessage] = []
    at, end = 0, 1
    while at < end:
        try:
            pulled = await queues.pull(DISCARDED_TOPIC, 0, at, 32)
        except BrokerRefused:  # the broker makes the topic with the first one
            return []
        found += [it for it in pulled.messages if it.properties["REAL_TOPIC"] == topic]
        at, end = pulled.next_offset, pulled.offsets.end
    return found


# --- faults -----------------------------------------------------------------------------------------------------------


async def test_many_questions_share_one_connection(
    make_proxy: Callable[[str], TcpProxy], client: RemotingClient, rocketmq: RocketMQ, topic: str
) -> None:
    proxy = make_proxy(rocketmq.broker)
    queues = BrokerQueues(client, proxy.address)
    for number in range(5):
        await send(client, proxy.address, topic, str(number).encode())
    await pull_all(queues, topic, 0, 5)
    pulled = await asyncio.gather(*(queues.pull(topic, 0, number % 5, 1) for number in range(100)))
    assert [it.messages[0].body for it in pulled] == [str(number % 5).encode() for number in range(100)]
    assert proxy.accepted == 1


async def test_a_broker_that_is_away_is_unavailable_at_once(client: RemotingClient) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:9"):
        await BrokerAdmin(client, "127.0.0.1:9").topics()
    assert time.monotonic() - began < PATIENT_S / 2


async def test_a_silent_broker_is_unavailable_by_the_deadline_and_a_new_connection_is_made_once_it_is_back(
    make_proxy: Callable[[str], TcpProxy], client: RemotingClient, rocketmq: RocketMQ
) -> None:
    proxy = make_proxy(rocketmq.broker)
    impatient = RemotingClient(RemotingOptions(timeout_s=0.5))
    proxy.swallow()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"no answer within 0\.5 s"):
        await BrokerAdmin(impatient, proxy.address).topics()
    assert 0.4 < time.monotonic() - began < PATIENT_S / 2
    await impatient.close()
    proxy.heal()
    assert await BrokerAdmin(client, proxy.address).topics()


async def test_an_answer_that_is_lost_is_unavailable_and_the_next_call_connects_again(
    make_proxy: Callable[[str], TcpProxy], client: RemotingClient, rocketmq: RocketMQ
) -> None:
    proxy = make_proxy(rocketmq.broker)
    admin = BrokerAdmin(client, proxy.address)
    proxy.cut_replies(1)
    with pytest.raises(BrokerUnavailable):
        await admin.create_topic("lost-answer", TopicType.FIFO, queues=1)
    assert (await admin.topics())["lost-answer"].type == "FIFO"  # it had been done
    proxy.reset()
    await asyncio.sleep(0.1)  # until the client has noticed
    assert "lost-answer" in await admin.topics()
    assert proxy.accepted == 3
