"""One broker's consumers: who they are, what they subscribe to, how far they are, and messages sent back by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.codes import RequestCode, ResponseCode
from service.adapters.rocketmq.remoting.frames import Request
from service.domain.errors import BrokerUnavailable

DEAD_LEVEL = -1
"""As a delay level: to the dead letters, at once."""
NOWHERE = (1 << 62) - 1
"""No message is there, in any broker's commit log."""

_QUEUE = re.compile(
    r'"brokerName"\s*:\s*"(?P<broker>[^"]*)"\s*,\s*"queueId"\s*:\s*(?P<queue>\d+)\s*,\s*"topic"\s*:\s*"(?P<topic>[^"]*)"'
    r'\s*\}\s*:\s*\{[^}]*?"commitOffset"\s*:\s*"?(?P<offset>-?\d+)'
)
"""A queue as the key of a map, which is no JSON: Java's and C++'s clients both write it so."""
NO_OFFSET = 1 << 63
"""From here on a number is below 0: C++'s client writes it without its sign."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A group as one broker sees it. `subscriptions` by topic, the group's own retries among them."""

    client_ids: Sequence[str]
    subscriptions: Mapping[str, str]
    consume_type: str
    message_model: str


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """A queue that a consumer has, and the offset that it would store. None: nothing yet."""

    broker: str
    topic: str
    queue: int
    offset: int | None


class _Connection(msgspec.Struct, rename="camel"):
    client_id: str


class _Subscription(msgspec.Struct, rename="camel"):
    topic: str
    sub_string: str = ""


class _Members(msgspec.Struct, rename="camel"):
    connection_set: list[_Connection] = []
    subscription_table: dict[str, _Subscription] = {}
    consume_type: str = ""
    message_model: str = ""


_decode = msgspec.json.Decoder(_Members).decode


class BrokerConsumers:
    """BrokerUnavailable and BrokerRefused as RemotingClient says them."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def members(self, group: str) -> Membership | None:
        """None: nobody consumes in it."""
        answer = await self._client.call(
            self.address,
            Request(code=RequestCode.GET_CONSUMER_CONNECTION_LIST, fields={"consumerGroup": group}),
            expected={ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE},
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        try:
            found = _decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BrokerUnavailable(self.address, f"its list of consumers cannot be read: {error}") from error
        return Membership(
            client_ids=[it.client_id for it in found.connection_set],
            subscriptions={topic: it.sub_string for topic, it in found.subscription_table.items()},
            consume_type=found.consume_type,
            message_model=found.message_model,
        )

    async def states(self, group: str, client_id: str) -> Sequence[QueueState]:
        """Asked of the consumer itself, through the broker: an answer shows that the two hear each other.

        BrokerUnavailable: the broker does not know it, or it does not answer."""
        fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
        answer = await self._client.call(
            self.address, Request(code=RequestCode.GET_CONSUMER_RUNNING_INFO, fields=fields)
        )
        return queue_states(answer.body.decode(errors="replace"))

    async def send_back(self, group: str, topic: str, offset: int, level: int) -> None:
        """Make a copy of the message at this place of the commit log: for the group's retries after the delay of
        `level`, or for its dead letters (`DEAD_LEVEL`, and where its attempts are used up). It counts as an attempt.

        BrokerUnavailable also where nothing lies there. Asked twice, there may be two copies."""
        fields = {"offset": str(offset), "group": group, "delayLevel": str(level), "originTopic": topic}
        await self._client.call(self.address, Request(code=RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields))

    async def make_retries(self, group: str, topic: str) -> None:
        """The topic of the group's retries: a broker makes it with the first that is sent back. Nothing is."""
        fields = {"offset": str(NOWHERE), "group": group, "delayLevel": "1", "originTopic": topic}
        await self._client.call(
            self.address,
            Request(code=RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields),
            expected={ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR},
        )


def queue_states(text: str) -> Sequence[QueueState]:
    return [
        QueueState(
            broker=match["broker"],
            topic=match["topic"],
            queue=int(match["queue"]),
            offset=offset if 0 <= (offset := int(match["offset"])) < NO_OFFSET else None,
        )
        for match in _QUEUE.finditer(text)
    ]
