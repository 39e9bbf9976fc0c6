"""Which broker has a topic: asked of the name servers, one after the other until one answers."""

from __future__ import annotations

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
        """The addresses of all brokers' masters."""
        return sorted(part.address for part in await self.route(EVERYWHERE))

    async def _ask(self, request: Request) -> tuple[str, Frame]:
        """The first name server that answers; the last one's fault where none does."""
        *others, last = self._addresses
        for address in others:
            try:
                return address, await self._client.call(address, request)
            except BrokerRefused:
                raise
            except BrokerUnavailable:
                continue
        return last, await self._client.call(last, request)
