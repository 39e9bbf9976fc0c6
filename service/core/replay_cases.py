"""What a look hands to a replay: each item, and what acting on it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from service.core.claims import BatchClaims
from service.domain.batch import BatchMessage
from service.domain.ids import ReservationId, SaleId
from service.domain.replay import Absence, Item, Now, Outcome, Scope, Source


@dataclass(frozen=True, kw_only=True)
class MakeOrders:
    """The order transaction on the stored body of a batch that Redis decided."""

    claims: BatchClaims


@dataclass(frozen=True, kw_only=True)
class DecideLetter:
    """The order transaction on the body of a dead letter."""

    batch: BatchMessage


@dataclass(frozen=True, kw_only=True)
class Resume:
    """The broker asks about a discarded half message again."""


@dataclass(frozen=True, kw_only=True)
class Forget:
    """The broker's copy of what was decided before goes off its list."""

    source: Source


Act = MakeOrders | DecideLetter | Resume | Forget


@dataclass(frozen=True, kw_only=True)
class Case:
    """`act` None: nothing is to be done, or nothing can be."""

    item: Item
    act: Act | None = None


@dataclass(frozen=True, kw_only=True)
class Looked:
    """`more`: the source has more than these."""

    cases: tuple[Case, ...]
    more: bool


class Finder(Protocol):
    async def find(self, scope: Scope) -> Looked:
        """Read only, and bounded by BATCHES_MAX."""


def left_alone(
    outcome: Outcome,
    why: str,
    id_: ReservationId | None = None,
    *,
    sale_id: SaleId | None = None,
    now: Now | None = None,
) -> Case:
    """An item that no batch belongs to: a named id, or a sale that cannot be looked at."""
    named = () if id_ is None else (now or Now(reservation_id=id_, standing=Absence.NOTHING),)
    return Case(item=Item(outcome=outcome, why=why, sale_id=sale_id, reservations=named))


def bounded(cases: Iterable[Case], limit: int, *, more: bool = False) -> Looked:
    """At most so many, those that something is done for before those that nothing can be done for: what stays for ever
    keeps nobody behind it waiting."""
    found = sorted(cases, key=lambda case: case.act is None)
    return Looked(cases=tuple(found[:limit]), more=more or len(found) > limit)


class Listed:
    """What a look has listed so far: full once there is more to do than `limit`. Of those that nothing can be done for
    no more than that are kept."""

    def __init__(self, limit: int) -> None:
        self.more = False
        self._limit = limit
        self._acting: list[Case] = []
        self._idle: list[Case] = []

    def add(self, cases: Iterable[Case]) -> None:
        for case in cases:
            if case.act is not None:
                self._acting.append(case)
            elif len(self._idle) < self._limit:
                self._idle.append(case)
            else:
                self.more = True

    @property
    def is_full(self) -> bool:
        return len(self._acting) > self._limit

    def looked(self, *, more: bool) -> Looked:
        return bounded([*self._acting, *self._idle], self._limit, more=more or self.more)


def if_old_enough(case: Case, scope: Scope, now_ms: int) -> Case:
    """What was named, and is younger than the scope says, waits."""
    born_at_ms = case.item.born_at_ms
    if case.act is None or born_at_ms is None or born_at_ms <= now_ms - scope.older_than_s * 1000:
        return case
    why = f"It is younger than {scope.older_than_s} s: its own message comes first."
    return Case(item=replace(case.item, outcome=Outcome.WAITING, why=why))
