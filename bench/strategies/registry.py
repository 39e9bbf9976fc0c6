"""Every strategy by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bench.strategies.bare_decr import BareDecr
from bench.strategies.conditional_update import ConditionalUpdate
from bench.strategies.for_update import ForUpdate
from bench.strategies.lock_around_order import LockAroundOrder
from bench.strategies.naive import Naive
from bench.strategies.optimistic import Optimistic
from bench.strategies.redis_then_message import RedisThenMessage
from bench.strategies.segmented import Segmented
from bench.strategies.strategy import Stores, Strategy

STRATEGIES: Mapping[str, Callable[[Stores], Strategy]] = MappingProxyType(
    {
        Naive.name: Naive,
        BareDecr.name: BareDecr,
        LockAroundOrder.name: LockAroundOrder,
        ForUpdate.name: ForUpdate,
        Optimistic.name: Optimistic,
        ConditionalUpdate.name: ConditionalUpdate,
        RedisThenMessage.name: RedisThenMessage,
        Segmented.name: Segmented,
    }
)
