"""One broker's queues: how far they and their readers are, what is in them, and half messages to be asked about again.

A queue is a topic and a number from 0."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from service.adapters.rocketmq.remoting import messages
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.codes import RequestCode, ResponseCode
from service.adapters.rocketmq.remoting.frames import Frame, MalformedFrame, Request
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.domain.errors import BrokerRefused, BrokerUnavailable

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The broker's own group for tools: a look leaves no trace in anybody's offsets."""
PULL_MAX = 32
"""Messages of one pull: by its own settings a broker hands out no more."""
SUBSCRIPTION_INSIDE = 4
"""Bit of `sysFlag`: the request brings its subscription. Not set: wait for messages, store an offset."""
PULL_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
NO_MESSAGE_THERE = (
    "can not find message by the offset",
    "java.lang.IllegalArgumentException",  # it took what is there for a message's size
    "java.lang.IndexOutOfBoundsException",
)
"""What the broker remarks about a place where no message begins."""


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """`first` is the oldest message still there, `end` is one after the newest."""

    first: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """`next_offset` is where to go on, also when nothing was found: what was there may have been deleted."""

    messages: Sequence[StoredMessage]
    next_offset: int
    offsets: Offsets


class BrokerQueues:
    """Looks only, but `set_consumer_offset` and `resume_check`."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def offsets(self, topic: str, queue: int) -> Offsets:
        """Zeros for a queue that is not there."""
        fields = {"topic": topic, "queueId": str(queue)}
        first = await self._client.call(self.address, Request(code=RequestCode.GET_MIN_OFFSET, fields=fields))
        end = await self._client.call(self.address, Request(code=RequestCode.GET_MAX_OFFSET, fields=fields))
        return Offsets(first=max(0, self._number(first, "offset")), end=max(0, self._number(end, "offset")))

    async def consumer_offset(self, group: str, topic: str, queue: int) -> int | None:
        """The group's next message. None: it never said."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "setZeroIfNotFound": "false"}
        answer = await self._client.call(
            self.address,
            Request(code=RequestCode.QUERY_CONSUMER_OFFSET, fields=fields),
            expected={ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND},
        )
        return self._number(answer, "offset") if answer.code == ResponseCode.SUCCESS else None

    async def set_consumer_offset(self, group: str, topic: str, queue: int, offset: int) -> None:
        """BrokerRefused: there is no such group."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)}
        await self._client.call(self.address, Request(code=RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields))

    async def lag(self, group: str, topic: str, queues: int) -> int:
        """Messages that the group has not been given. A gRPC consumer's count as given before they are acknowledged."""
        return sum(await asyncio.gather(*(self._lag(group, topic, queue) for queue in range(queues))))

    async def _lag(self, group: str, topic: str, queue: int) -> int:
        offset = await self.consumer_offset(group, topic, queue)
        offsets = await self.offsets(topic, queue)
        return max(0, offsets.end - max(offsets.first, offset or 0))

    async def pull(self, topic: str, queue: int, offset: int, limit: int, *, group: str = TOOLS_GROUP) -> Pulled:
        """Up to `limit` messages from `offset` on; fewer where the broker's own bounds say so."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(limit),
            "sysFlag": str(SUBSCRIPTION_INSIDE),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        request = Request(code=RequestCode.PULL_MESSAGE, fields=fields)
        answer = await self._client.call(self.address, request, expected=PULL_ANSWERS)
        found = self._messages(answer) if answer.code == ResponseCode.SUCCESS else []
        return Pulled(
            messages=found,
            next_offset=self._number(answer, "nextBeginOffset"),
            offsets=Offsets(first=self._number(answer, "minOffset"), end=self._number(answer, "maxOffset")),
        )

    async def pull_if_there(self, topic: str, queue: int, offset: int, *, group: str = TOOLS_GROUP) -> Pulled | None:
        """As many as one pull gives. None: the broker knows no such topic."""
        try:
            return await self.pull(topic, queue, offset, PULL_MAX, group=group)
        except BrokerRefused as refused:
            if (refused.why or "").startswith(f"answer {ResponseCode.TOPIC_NOT_EXIST.value}:"):
                return None
            raise

    async def view(self, offset: int) -> StoredMessage | None:
        """The message that begins at this place of the commit log. None: none does, or not any more."""
        answer = await self._client.call(
            self.address,
            Request(code=RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(offset)}),
            expected={ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR},
        )
        if answer.code != ResponseCode.SUCCESS:
            if answer.remark.startswith(NO_MESSAGE_THERE):
                return None
            raise BrokerUnavailable(self.address, answer.remark or "it cannot say what is there")
        try:
            message = messages.decode(answer.body)
        except MalformedFrame:  # the broker reads from any offset, and calls it a message
            return None
        return message if message.offset == offset else None

    async def resume_check(self, physical_id: str) -> None:
        """Make the message a half message again, asked about from question 1. Success is not yet a verdict.

        The broker copies whatever is at that place: look by `view` first whether it is a discarded half message."""
        fields = {"msgId": physical_id}
        await self._client.call(self.address, Request(code=RequestCode.RESUME_CHECK_HALF_MESSAGE, fields=fields))

    def _messages(self, answer: Frame) -> Sequence[StoredMessage]:
        try:
            return messages.decode_all(answer.body)
        except MalformedFrame as error:
            raise BrokerUnavailable(self.address, str(error)) from error

    def _number(self, answer: Frame, field: str) -> int:
        value = answer.fields.get(field, "")
        try:
            return int(value)
        except ValueError:
            raise BrokerUnavailable(self.address, f"its answer has no number {field!r}: {value!r}") from None
