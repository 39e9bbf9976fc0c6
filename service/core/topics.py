"""The topics and groups of design §3.7, under a settable prefix."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.errors import InvalidRequest
from service.ports.messaging import Topic, TopicType

UNLIMITED_ATTEMPTS = 100_000
"""The order group's: waiting is not failing, only our own code dead-letters there (design §3.3). An order service's
too, where we make its group: a database that is away for ten minutes must cost it no event."""
TIMEOUT_ATTEMPTS = 16
"""RocketMQ's default: the sweep is the guarantee."""
BROKERS_OWN = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "DEFAULT_CONSUMER"})
"""Groups of RocketMQ itself (its MixAll, 5.4.0), beside those that begin with CID_."""


@dataclass(frozen=True, kw_only=True)
class Topics:
    order: Topic
    payment_timeout: Topic
    events: Topic

    def all(self) -> tuple[Topic, ...]:
        return (self.order, self.payment_timeout, self.events)

    @classmethod
    def named(cls, prefix: str, *, events_group: str | None = None) -> Topics:
        """`events_group` is the order service's: it reads the events, we do not. InvalidRequest: it is not."""
        named = cls(
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
                max_attempts=UNLIMITED_ATTEMPTS,
                group_is_ours=events_group is None,
            ),
        )
        if events_group is not None:
            _require_theirs(events_group, prefix)
        return named


def _require_theirs(group: str, prefix: str) -> None:
    """Changed to be an order service's, ours would lose its attempts, and the broker's own its order."""
    if group.startswith(f"{prefix}-"):
        raise InvalidRequest("events_group", f"{group}: names that begin with {prefix}- are Dropgate's own")
    if group.startswith("CID_") or group in BROKERS_OWN:
        raise InvalidRequest("events_group", f"{group} is a group of RocketMQ's own")
