"""What both transports read off a message before they send it."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.errors import BrokerRefused
from service.ports.messaging import OutgoingMessage, TopicType


def type_of(message: OutgoingMessage, *, half: bool) -> TopicType:
    """The message's own type, as the 5.x proxy derives it. A message of two types is refused."""
    types = [TopicType.TRANSACTION] if half else []
    types += [TopicType.DELAY] if message.deliver_at_ms is not None else []
    types += [TopicType.FIFO] if message.fifo_group is not None else []
    if len(types) > 1:
        raise BrokerRefused(message.topic, f"a message cannot be {' and '.join(types)}")
    return types[0] if types else TopicType.NORMAL


def lanes(messages: Sequence[OutgoingMessage]) -> Sequence[Sequence[OutgoingMessage]]:
    """What must go one after the other: a FIFO group's messages. Lanes go side by side."""
    found: dict[tuple[str, str | int], list[OutgoingMessage]] = {}
    for number, message in enumerate(messages):
        lane = number if message.fifo_group is None else message.fifo_group
        found.setdefault((message.topic, lane), []).append(message)
    return list(found.values())
