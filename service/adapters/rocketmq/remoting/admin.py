"""One broker's topics, groups and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.codes import RequestCode
from service.adapters.rocketmq.remoting.frames import Request
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import TopicType

READ_WRITE = 6
MESSAGE_TYPE = "message.type"
UNTYPED = "UNTYPED"
"""A broker of 4.x: a topic takes any message, and has no attributes at all."""
DEFAULT_TOPIC = "TBW102"
"""The request demands a topic to inherit from; nothing is inherited."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """`type` as the broker says it: also MIXED, UNSPECIFIED where the topic has none, UNTYPED where the broker knows
    none."""

    name: str
    type: str
    read_queues: int
    write_queues: int
    permissions: int


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """`retry_max` re-deliveries, then the dead letters. Without `orderly` a FIFO topic's messages come in any order;
    None: a broker of 4.x, which leaves that to the group's consumers."""

    name: str
    retry_max: int
    orderly: bool | None
    consume_enabled: bool


class _TopicConfig(msgspec.Struct, rename="camel"):
    topic_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    attributes: dict[str, str] | None = None


class _Topics(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, _TopicConfig]


class _Group(msgspec.Struct, rename="camel"):
    """What is not said here has the broker's default when it is created."""

    group_name: str
    retry_max_times: int
    consume_enable: bool = True
    consume_message_orderly: bool | None = None


class _Groups(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, _Group]


class _RawGroups(msgspec.Struct, rename="camel"):
    """To write one back: a broker of another release knows more settings than we do."""

    subscription_group_table: dict[str, dict[str, object]]


class BrokerAdmin:
    """Every call may be made twice. BrokerUnavailable and BrokerRefused as RemotingClient says them."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def create_topic(self, name: str, type_: TopicType, *, queues: int) -> None:
        """Or change it: its settings become these, the type too, whatever is stored there. Look by `topics` first."""
        fields = {
            "topic": name,
            "defaultTopic": DEFAULT_TOPIC,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(READ_WRITE),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": f"+{MESSAGE_TYPE}={type_.value}",
        }
        await self._client.call(self.address, Request(code=RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))

    async def topics(self) -> Mapping[str, TopicSettings]:
        """All of them, also the broker's own."""
        answer = await self._client.call(self.address, Request(code=RequestCode.GET_ALL_TOPIC_CONFIG))
        table = self._read(answer.body, _Topics).topic_config_table
        return {
            name: TopicSettings(
                name=name,
                type=UNTYPED if it.attributes is None else it.attributes.get(MESSAGE_TYPE, "UNSPECIFIED"),
                read_queues=it.read_queue_nums,
                write_queues=it.write_queue_nums,
                permissions=it.perm,
            )
            for name, it in table.items()
        }

    async def create_group(self, name: str, *, retry_max: int, orderly: bool = False) -> None:
        """Where it is there already, what else was set on it falls back to the broker's defaults: `change_group`."""
        await self._write_group(_Group(group_name=name, retry_max_times=retry_max, consume_message_orderly=orderly))

    async def change_group(self, name: str, *, retry_max: int, orderly: bool) -> None:
        """All else on it stays. BrokerRefused: there is no such group."""
        table = self._read(await self._group_table(), _RawGroups).subscription_group_table
        if name not in table:
            raise BrokerRefused(self.address, f"there is no group {name}")
        await self._write_group(table[name] | {"retryMaxTimes": retry_max, "consumeMessageOrderly": orderly})

    async def groups(self) -> Mapping[str, GroupSettings]:
        table = self._read(await self._group_table(), _Groups).subscription_group_table
        return {
            name: GroupSettings(
                name=name,
                retry_max=it.retry_max_times,
                orderly=it.consume_message_orderly,
                consume_enabled=it.consume_enable,
            )
            for name, it in table.items()
        }

    async def _group_table(self) -> bytes:
        return (await self._client.call(self.address, Request(code=RequestCode.GET_ALL_GROUP_CONFIG))).body

    async def _write_group(self, group: object) -> None:
        request = Request(code=RequestCode.UPDATE_AND_CREATE_GROUP, body=msgspec.json.encode(group))
        await self._client.call(self.address, request)

    async def config(self) -> Mapping[str, str]:
        """The broker's properties as it runs with them, defaults included."""
        answer = await self._client.call(self.address, Request(code=RequestCode.GET_BROKER_CONFIG))
        pairs = (line.partition("=") for line in answer.body.decode(errors="replace").splitlines())
        return {name: value for name, separator, value in pairs if separator}

    async def unregister(self, client_id: str, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Forget a client, so that no check-back or message is sent to one that is gone."""
        fields = {"clientID": client_id}
        fields |= {"producerGroup": producer_group} if producer_group else {}
        fields |= {"consumerGroup": consumer_group} if consumer_group else {}
        await self._client.call(self.address, Request(code=RequestCode.UNREGISTER_CLIENT, fields=fields))

    def _read(self, body: bytes, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BrokerUnavailable(self.address, f"its answer cannot be read: {error}") from error
