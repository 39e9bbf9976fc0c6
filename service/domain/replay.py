"""Check-back replay: what an operator asks for, what may be done with each item, and what became of it. Pure:
`core/replay.py` asks the stores and acts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NewType

from service.domain.errors import InvalidRequest
from service.domain.ids import SALE_ID, BatchId, ReservationId, SaleId
from service.domain.order import Order
from service.domain.reservation import Reason, Status
from service.domain.sale import Authority, Sale
from service.domain.stock import Record, RecordState

ReplayId = NewType("ReplayId", str)

BATCHES_MAX = 64
"""Items of one replay: as many batches as a sweep takes in a turn. With 128 candidates each they take seconds, which a
caller of HTTP waits for."""
LOOK_MAX = 500
"""Messages of the broker that a replay looks through for those that it may act on: their bodies fit into memory."""
IDS_MAX = BATCHES_MAX
"""Reservations, and batches, that one replay may name: no more than it has items."""
ID_MAX = 96
"""Characters of an id that is named: the longest of ours has 80, and one that is none is answered as an item."""
AGE_MAX_S = 366 * 86_400
"""A year: no sale lasts longer, and the time that it leads to is one that the stores can be asked for."""
WHY_MAX = 200
"""Characters of a reason: a line of the audit."""
CLAIM_MS = 600_000
"""How long a discarded half message is one replay's alone. Resumed, it is asked about for 15 x 30 s; if its replay died
before it resumed anything, another one may do it after this time."""


class Source(StrEnum):
    """Where to look for what got stuck."""

    IN_DOUBT = "in_doubt"
    """Batches that Redis has decided and that have no orders."""
    DISCARDED = "discarded"
    """Half messages whose check-backs are used up."""
    DEAD_LETTER = "dead_letter"
    """Dead letters of the order group."""


class Outcome(StrEnum):
    """What becomes of one item."""

    PLANNED = "planned"
    """It would be done. In a replay that acted: it was not come to."""
    PENDING = "pending"
    """Begun, or accepted by the broker: its reservations do not say yet how it ended."""
    WAITING = "waiting"
    """It cannot be decided now: nothing was done, ask again later."""
    ORDERED = "ordered"
    """At least one of its reservations has an order."""
    RELEASED = "released"
    """None of its reservations holds anything: each ended, or never had a unit."""
    NO_OP = "no_op"
    """It was decided before: there was nothing to do."""
    REFUSED = "refused"
    """It is nothing that a replay can act on: nothing was done, and asking again does not help."""


UNSETTLED = frozenset({Outcome.PLANNED, Outcome.WAITING, Outcome.REFUSED})
"""Where these are left after an act, a person is not done."""


class Absence(StrEnum):
    """What the stores say of an id that has no status."""

    NOTHING = "nothing"
    """It holds nothing, and never will by what was answered so far."""
    IN_DOUBT = "in_doubt"
    """It may yet appear, or a store cannot say now."""


Standing = Status | Absence


@dataclass(frozen=True, kw_only=True)
class Now:
    """A reservation as the stores show it at this moment."""

    reservation_id: ReservationId
    standing: Standing
    reason: Reason | None = None


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What to replay. Nothing named: everything of the source. `older_than_s` counts from the batch's making."""

    source: Source
    sale_id: SaleId | None = None
    reservation_ids: tuple[ReservationId, ...] = ()
    batch_ids: tuple[BatchId, ...] = ()
    older_than_s: int = 0

    @property
    def names_ids(self) -> bool:
        return bool(self.reservation_ids or self.batch_ids)

    def check(self) -> None:
        """InvalidRequest where the stores could not be asked for it. The same for every way in."""
        if self.sale_id is not None and not SALE_ID.fullmatch(self.sale_id):
            raise InvalidRequest("scope.sale", "is no sale id: 1 to 48 of a-z, 0-9, - and _")
        _check_ids("scope.reservation_ids", self.reservation_ids)
        _check_ids("scope.batch_ids", self.batch_ids)
        if not 0 <= self.older_than_s <= AGE_MAX_S:
            raise InvalidRequest("scope.older_than_s", f"is not within 0 to {AGE_MAX_S} s")
        if self.source is Source.IN_DOUBT and self.batch_ids and self.sale_id is None:
            raise InvalidRequest("scope.sale", "name the sale of the batches: Redis keeps a batch under its sale")

    def picks(self, sale_id: SaleId, batch_id: BatchId, reservations: Collection[ReservationId]) -> bool:
        """Whether a batch is among what is asked for."""
        if self.sale_id is not None and self.sale_id != sale_id:
            return False
        return (
            not self.names_ids or batch_id in self.batch_ids or not set(self.reservation_ids).isdisjoint(reservations)
        )


def _check_ids(field: str, ids: Sequence[str]) -> None:
    if len(ids) > IDS_MAX:
        raise InvalidRequest(field, f"name {IDS_MAX} at most")
    if any(not 0 < len(id_) <= ID_MAX or not id_.isprintable() or len(id_.encode()) > ID_MAX for id_ in ids):
        raise InvalidRequest(field, f"an id has 1 to {ID_MAX} printable characters, and bytes of UTF-8")


def check_why(why: str) -> None:
    """InvalidRequest unless the audit can keep it and a person read it."""
    if not why.strip():
        raise InvalidRequest("why", "say why: it goes into the audit")
    if len(why) > WHY_MAX or not why.isprintable():
        raise InvalidRequest("why", f"one line of {WHY_MAX} printable characters at most")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One batch or message of a replay, or an id that leads to none. Times are UTC milliseconds; `epoch` is the
    batch's."""

    outcome: Outcome
    why: str
    message_id: str | None = None
    batch_id: BatchId | None = None
    sale_id: SaleId | None = None
    epoch: int | None = None
    born_at_ms: int | None = None
    reservations: tuple[Now, ...] = ()

    def age_s(self, now_ms: int) -> int | None:
        return None if self.born_at_ms is None else max(0, now_ms - self.born_at_ms) // 1000

    @property
    def subject(self) -> str:
        """What the audit names."""
        first = self.reservations[0].reservation_id if self.reservations else "-"
        return self.batch_id or self.message_id or first


@dataclass(frozen=True, kw_only=True)
class Replay:
    """`id` is None for a dry run: nothing of it is stored. `more`: the source has more than was looked at or acted on.

    `finished_at_ms` is None while it runs, and for ever if its process died.
    """

    id: ReplayId | None
    scope: Scope
    why: str | None
    actor: str
    created_at_ms: int
    more: bool
    items: tuple[Item, ...]
    finished_at_ms: int | None = None

    @property
    def dry_run(self) -> bool:
        return self.id is None

    @property
    def settled(self) -> bool:
        """Nothing is left for a person. Of a dry run: there is nothing to do."""
        if self.more and not self.items:
            return False
        return not any(item.outcome in UNSETTLED for item in self.items)


_REPLAY_ID = re.compile(r"rp-[0-9a-f]{20}")


def new_replay_id() -> ReplayId:
    """80 random bits."""
    return ReplayId(f"rp-{secrets.token_hex(10)}")


def is_replay_id(text: str) -> bool:
    return _REPLAY_ID.fullmatch(text) is not None


# --- how a reservation stands -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the stores say of one id: its row, and its record in the home slot of the sale's present epoch. `readable`:
    that slot could be looked at, or another authority than Redis decides."""

    row: Order | None
    record: Record | None
    readable: bool


def standing_now(id_: ReservationId, found: Found, *, may_yet_appear: bool) -> Now:
    """Like GET: the row, the record, and where neither is there, whether it may yet appear."""
    if found.row is not None:
        return Now(reservation_id=id_, standing=found.row.status, reason=found.row.reason)
    if found.record is not None:
        queued = found.record.state is RecordState.QUEUED
        return Now(reservation_id=id_, standing=Status.QUEUED if queued else Absence.IN_DOUBT)
    unknown = may_yet_appear or not found.readable
    return Now(reservation_id=id_, standing=Absence.IN_DOUBT if unknown else Absence.NOTHING)


def batch_may_yet_win(sale: Sale, epoch: int, *, closed_at_ms: int | None, now_ms: int) -> bool:
    """Whether a candidate without a record may still win: of an older epoch until that is closed (design §3.3).
    GET says 404 from then on.

    `closed_at_ms`: the epoch's deadline and the margin; None: it is not known to end.
    """
    if sale.authority is not Authority.REDIS or epoch > sale.epoch:
        return True
    return epoch < sale.epoch and (closed_at_ms is None or now_ms < closed_at_ms)


HOLDS_NOTHING: frozenset[Standing] = frozenset({Status.CANCELLED, Status.REJECTED, Absence.NOTHING})


def outcome_of(reservations: Iterable[Now]) -> Outcome:
    """What became of a batch, by its reservations alone."""
    standings = {now.standing for now in reservations}
    if standings & {Status.QUEUED, Absence.IN_DOUBT}:
        return Outcome.PENDING
    return Outcome.RELEASED if standings <= HOLDS_NOTHING else Outcome.ORDERED


WHY_NOW: dict[Outcome, str] = {
    Outcome.ORDERED: "It has its orders.",
    Outcome.RELEASED: "None of its reservations holds anything.",
}
"""Of what was pending, once its reservations say so."""


def settle(item: Item, reservations: tuple[Now, ...], losers: Collection[ReservationId] = ()) -> Item:
    """The item as its reservations show it now. What was begun ends when they say so; what waited, or was not come to,
    once all of them have rows. `losers` of its own batch hold nothing by it, whatever they have won since."""
    counted = [now for now in reservations if now.reservation_id not in losers]
    left = item.outcome in {Outcome.WAITING, Outcome.PLANNED} and _all_have_rows(counted)
    outcome = outcome_of(counted) if item.outcome is Outcome.PENDING or left else item.outcome
    why = item.why if outcome is item.outcome else WHY_NOW[outcome]
    return replace(item, outcome=outcome, why=why, reservations=reservations)


def _all_have_rows(reservations: Collection[Now]) -> bool:
    standings = [now.standing for now in reservations]
    return bool(standings) and all(isinstance(it, Status) and it is not Status.QUEUED for it in standings)
