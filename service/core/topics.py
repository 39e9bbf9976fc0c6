"""The topics and groups of design §3.7, under a settable prefix."""

from __future__ import annotations

from dataclasses import dataclass

from service.ports.messaging import Topic, TopicType

UNLIMITED_ATTEMPTS = 100_000
"""The order group's: waiting is not failing, only our own code dead-letters there (design §3.3)."""
TIMEOUT_ATTEMPTS = 16
"""RocketMQ's default: the sweep is the guarantee."""
EVENTS_ATTEMPTS = 16
"""RocketMQ's default, for an order service that names no number of its own."""


@dataclass(frozen=True, kw_only=True)
class Topics:
    order: Topic
    payment_timeout: Topic
    events: Topic

    def all(self) -> tuple[Topic, ...]:
        return (self.order, self.payment_timeout, self.events)

    @classmethod
    def named(cls, prefix: str, *, events_group: str | None = None) -> Topics:
        """`events_group` is the order service's: it reads the events, we do not."""
        return cls(
            order=Topic(
                name=f"{prefix}-order",
                type=TopicType.TRANSACTION,
                group=f"{prefix}-order-creator",
                max_attempts=UNLIMITED_ATTEMPTS,
            ),
            payment_timeout=Topic(
                name=f"{prefix}-payment-timeout-15m",
                type=TopicType.DELAY,
                group=f"{prefix}-payment-timeout",
                max_attempts=TIMEOUT_ATTEMPTS,
            ),
            events=Topic(
                name=f"{prefix}-order-events",
                type=TopicType.FIFO,
                group=events_group,
                max_attempts=EVENTS_ATTEMPTS,
            ),
        )
