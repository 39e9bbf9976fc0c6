"""Which broker has a topic: asked of all name servers at once. One may be dead without a word, or just started and
still empty: the first that knows the topic is believed, and that nobody has it only where all that answer say so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.codes import RequestCode
from service.adapters.rocketmq.remoting.frames import Frame, Request
from service.domain.errors import BrokerRefused, BrokerUnavailable

MASTER = "0"
EVERYWHERE = "SELF_TEST_TOPIC"
"""Each broker has this topic from its start. The cluster's own list is no JSON: its keys are bare numbers."""


class NoBroker(BrokerUnavailable):
    """Name servers answer, and no broker is registered there."""

    def __init__(self, name_servers: str) -> None:
        super().__init__(name_servers, "no broker is registered there")


@dataclass(frozen=True, kw_only=True)
class TopicPart:
    """A topic's queues on one broker. `address` is the master's."""

    cluster: str
    broker: str
    address: str
    read_queues: int
    write_queues: int


class _QueueData(msgspec.Struct, rename="camel"):
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int


class _BrokerData(msgspec.Struct, rename="camel"):
    broker_name: str
    broker_addrs: dict[str, str]
    cluster: str = ""


class _RouteData(msgspec.Struct, rename="camel"):
    queue_datas: list[_QueueData] = []
    broker_datas: list[_BrokerData] = []


_decode = msgspec.json.Decoder(_RouteData).decode


class NameServers:
    """`host:port;host:port`, as RocketMQ writes them."""

    def __init__(self, client: RemotingClient, addresses: str) -> None:
        self._client = client
        self._addresses = [address for part in addresses.split(";") if (address := part.strip())]
        self._asking: set[asyncio.Task[tuple[str, Frame]]] = set()
        if not self._addresses:
            raise BrokerRefused("name server", "no address is given: host:port;host:port")

    async def route(self, topic: str) -> Sequence[TopicPart]:
        """BrokerRefused: no broker has it. Parts without a master (it is away) are not listed."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        address, answer = await self._ask(Request(code=RequestCode.GET_ROUTE_BY_TOPIC, fields=fields))
        try:
            data = _decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BrokerUnavailable(address, f"its route of {topic} cannot be read: {error}") from error
        queues = {it.broker_name: it for it in data.queue_datas}
        return [
            TopicPart(
                cluster=it.cluster,
                broker=it.broker_name,
                address=it.broker_addrs[MASTER],
                read_queues=queues[it.broker_name].read_queue_nums,
                write_queues=queues[it.broker_name].write_queue_nums,
            )
            for it in data.broker_datas
            if MASTER in it.broker_addrs and it.broker_name in queues
        ]

    async def masters(self) -> Sequence[str]:
        """The addresses of all brokers' masters, one at least. NoBroker."""
        try:
            found = sorted(part.address for part in await self.route(EVERYWHERE))
        except BrokerRefused:
            found = []
        if not found:
            raise NoBroker(";".join(self._addresses))
        return found

    async def _ask(self, request: Request) -> tuple[str, Frame]:
        """The first answer that knows. BrokerRefused: all that answered do not. BrokerUnavailable: nobody answered."""
        asked = [self._begin(address, request) for address in self._addresses]
        refused: BrokerRefused | None = None
        away: BrokerUnavailable | None = None
        for answer in asyncio.as_completed(asked):
            try:
                return await answer
            except BrokerRefused as error:
                refused = error
            except BrokerUnavailable as error:
                away = error
        raise refused or away or AssertionError("there is a name server at least")

    def _begin(self, address: str, request: Request) -> asyncio.Task[tuple[str, Frame]]:
        """Ends by the client's own deadline. Not cancelled where another was quicker: that would cost a connection."""
        task = asyncio.create_task(self._ask_one(address, request), name=f"name server {address}")
        self._asking.add(task)
        task.add_done_callback(self._asked)
        return task

    def _asked(self, task: asyncio.Task[tuple[str, Frame]]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left to ask for it

    async def _ask_one(self, address: str, request: Request) -> tuple[str, Frame]:
        return address, await self._client.call(address, request)
