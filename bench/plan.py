"""What one run measures: steps in the order in which they are taken, each by a name that progress shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from bench.figures import Figure
from bench.report.facts import Fact


class Group(StrEnum):
    """What `--only` names."""

    FLOORS = "floors"
    STRATEGIES = "strategies"
    ENGINE = "engine"
    HTTP = "http"
    PACED = "paced"
    AFTERWARDS = "afterwards"
    STORIES = "stories"
    SOAK = "soak"


DEFAULT_GROUPS = frozenset(Group) - {Group.SOAK}

Found = Sequence[Figure | Fact]


@dataclass(frozen=True)
class Step:
    """`repeated`: once in each round. A story is told once: it is right or wrong."""

    name: str
    group: Group
    take: Callable[[], Awaitable[Found]]
    repeated: bool = True


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """As the command line has them."""

    groups: frozenset[Group]
    clients: tuple[int, ...]
    repeats: int
    warm_s: float
    seconds: float
    soak_s: float
