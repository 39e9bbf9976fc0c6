"""Requests to the proxy and its answers, between the protocol's messages and the port's.

The protocol has a field for a namespace, and RocketMQ's own proxy does not look at it (seen with 5.4.0): a namespace is
part of the name here, as it is for the broker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from service.adapters.rocketmq.admin.topics import MAKES
from service.adapters.rocketmq.grpc.sdk import MessageIdCodec, Misc, RpcEndpoints, definition, protocol
from service.adapters.rocketmq.remoting.messages import CHECK_TIMES
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import CheckRequest, Delivery, OutgoingMessage, TopicType

Code = definition.Code
REFUSED_FROM, REFUSED_TO = 40_000, 44_000
"""The protocol's codes for what the client did wrong, in thousands as HTTP's."""
TRY_AGAIN = frozenset(
    {
        Code.UNRECOGNIZED_CLIENT_TYPE,  # the proxy has lost our settings: it gets them again within seconds
        Code.REQUEST_TIMEOUT,
        Code.TOO_MANY_REQUESTS,
    }
)
"""Among those: not our doing."""
MISSING = {
    Code.TOPIC_NOT_FOUND: f"no such topic: {MAKES}",
    Code.CONSUMER_GROUP_NOT_FOUND: f"no such group: {MAKES}",
}
RESOLUTIONS = {
    Verdict.COMMIT: definition.TransactionResolution.COMMIT,
    Verdict.ROLLBACK: definition.TransactionResolution.ROLLBACK,
}
SYSTEM_PROPERTIES = frozenset({"__transactionId__", CHECK_TIMES})
"""What brokers of 5.x leave among the sender's own properties."""
DELAY_STEP_MS = 1000
"""The broker's timer ticks in whole seconds and rounds down: a time is rounded up to one first, never early."""


@dataclass(frozen=True, kw_only=True)
class Half:
    """A half message that the broker has: who ends it needs all of this. Only these endpoints know the transaction."""

    topic: str
    message_id: str
    transaction_id: str
    endpoints: RpcEndpoints


@dataclass(frozen=True, kw_only=True)
class Held:
    """The receipt of a delivery. It is void once the message was handed out again."""

    endpoints: RpcEndpoints
    handle: str
    attempt: int


# --- answers ----------------------------------------------------------------------------------------------------------


def check_status(status: Any, where: str) -> None:
    """BrokerRefused where asking again is no use, else BrokerUnavailable."""
    code = status.code
    if code in {Code.OK, Code.MULTIPLE_RESULTS}:
        return
    said = f"answer {code}: {status.message.splitlines()[0] if status.message else 'no remark'}"
    if code in MISSING:
        raise BrokerRefused(where, f"{MISSING[code]} ({said})")
    if REFUSED_FROM <= code < REFUSED_TO and code not in TRY_AGAIN:
        raise BrokerRefused(where, said)
    raise BrokerUnavailable(where, said)


def is_nothing_there(status: Any) -> bool:
    """An empty poll is a status of its own."""
    return bool(status.code == Code.MESSAGE_NOT_FOUND)


def is_void(status: Any) -> bool:
    """The delivery is no longer ours."""
    return bool(status.code == Code.INVALID_RECEIPT_HANDLE)


def delivery(message: Any, topic: str, endpoints: RpcEndpoints) -> Delivery:
    """What cannot be unpacked goes on as it is: the consumer says what becomes of it."""
    system = message.system_properties
    return Delivery(
        topic=topic,
        message_id=system.message_id,
        key=_key(system.keys),
        body=_body(message),
        attempt=max(1, system.delivery_attempt),
        born_at_ms=Misc.to_mills(system.born_timestamp),
        receipt=Held(endpoints=endpoints, handle=system.receipt_handle, attempt=max(1, system.delivery_attempt)),
        properties=_own(message.user_properties),
    )


def check_request(message: Any, topic: str) -> CheckRequest:
    return CheckRequest(
        topic=topic,
        message_id=message.system_properties.message_id,
        key=_key(message.system_properties.keys),
        body=_body(message),
        check=_number(message.user_properties.get(CHECK_TIMES, "1")),
    )


def _key(keys: Sequence[str]) -> str:
    return keys[0] if keys else ""


def _own(properties: Any) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in SYSTEM_PROPERTIES}


def _body(message: Any) -> bytes:
    if message.system_properties.body_encoding != definition.Encoding.GZIP:
        return bytes(message.body)
    try:
        return bytes(Misc.uncompress_bytes_gzip(message.body))
    except Exception:  # noqa: BLE001 - of a body that lies about itself: zlib, gzip and OS errors
        return bytes(message.body)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 1


# --- requests ---------------------------------------------------------------------------------------------------------


def send(message: OutgoingMessage, type_: TopicType, topic: str) -> Any:
    """Without CHECK_IMMUNITY_TIME (`orphaned_transaction_recovery_duration`): it burns checks in silence, and a COMMIT
    that is later than it is refused (F16)."""
    request = protocol.SendMessageRequest()
    out = request.messages.add()
    out.topic.name = topic
    out.body = message.body
    out.user_properties.update(message.properties)
    system = out.system_properties
    system.keys.extend([message.key] if message.key else [])
    system.message_id = MessageIdCodec().next_message_id()
    system.message_type = definition.MessageType.Value(type_.value)
    _set_ms(system.born_timestamp, time.time_ns() // 1_000_000)
    system.born_host = Misc.get_local_ip()
    system.body_encoding = definition.Encoding.IDENTITY
    if message.fifo_group is not None:
        system.message_group = message.fifo_group
    if message.deliver_at_ms is not None:
        _set_ms(system.delivery_timestamp, math.ceil(message.deliver_at_ms / DELAY_STEP_MS) * DELAY_STEP_MS)
    return request


def end(half: Half, verdict: Verdict, *, asked: bool) -> Any:
    sources = definition.TransactionSource
    request = protocol.EndTransactionRequest()
    request.topic.name = half.topic
    request.message_id, request.transaction_id = half.message_id, half.transaction_id
    request.resolution = RESOLUTIONS[verdict]
    request.source = sources.SOURCE_SERVER_CHECK if asked else sources.SOURCE_CLIENT
    return request


@dataclass(frozen=True, kw_only=True)
class Subscriber:
    """Who reads, and what: part of every request of a consumer. Names as the broker has them."""

    topic: str
    group: str

    def heartbeat(self, client_type: int) -> Any:
        return self._named(protocol.HeartbeatRequest(client_type=client_type), topic=False)

    def receive(self, queue: Any, *, limit: int, invisible_s: float, poll_s: float) -> Any:
        request = self._named(protocol.ReceiveMessageRequest(), topic=False)
        request.message_queue.CopyFrom(queue)
        request.filter_expression.type = definition.FilterType.TAG
        request.filter_expression.expression = "*"
        request.batch_size, request.auto_renew = limit, False
        _set_s(request.invisible_duration, invisible_s)
        _set_s(request.long_polling_timeout, poll_s)
        return request

    def ack(self, held: Held, message_id: str) -> Any:
        request = self._named(protocol.AckMessageRequest())
        entry = request.entries.add()
        entry.message_id, entry.receipt_handle = message_id, held.handle
        return request

    def postpone(self, held: Held, message_id: str, delay_s: float) -> Any:
        request = self._named(protocol.ChangeInvisibleDurationRequest())
        request.message_id, request.receipt_handle = message_id, held.handle
        _set_s(request.invisible_duration, delay_s)
        return request

    def bury(self, held: Held, message_id: str) -> Any:
        """The proxy puts a copy into `%DLQ%group` and acknowledges the message; clients may not send there."""
        request = self._named(protocol.ForwardMessageToDeadLetterQueueRequest())
        request.message_id, request.receipt_handle = message_id, held.handle
        request.delivery_attempt, request.max_delivery_attempts = held.attempt, held.attempt
        return request

    def _named(self, request: Any, *, topic: bool = True) -> Any:
        request.group.name = self.group
        if topic:
            request.topic.name = self.topic
        return request


def route(topic: str, endpoints: RpcEndpoints) -> Any:
    request = protocol.QueryRouteRequest()
    request.topic.name = topic
    request.endpoints.CopyFrom(endpoints.endpoints)
    return request


def types_of(queues: Iterable[Any]) -> frozenset[str]:
    """The message types that a topic's queues take."""
    return frozenset(definition.MessageType.Name(type_) for queue in queues for type_ in queue.accept_message_types)


def _set_ms(timestamp: Any, at_ms: int) -> None:
    timestamp.seconds, rest_ms = divmod(max(0, at_ms), 1000)
    timestamp.nanos = rest_ms * 1_000_000


def _set_s(duration: Any, seconds: float) -> None:
    """Rounded up to milliseconds: never shorter than asked for."""
    duration.seconds, rest_ms = divmod(math.ceil(seconds * 1000), 1000)
    duration.nanos = rest_ms * 1_000_000
