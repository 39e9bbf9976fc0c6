"""What a replay may do with one item, from what a look found: the same for a dry run and for an act. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from service.domain.batch import BatchMessage
from service.domain.ids import ReservationId
from service.domain.replay import Absence, Now, Outcome, ReplayId, Source
from service.domain.reservation import Status
from service.domain.road import Meeting, meeting
from service.domain.sale import Authority, Sale


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`outcome` is `planned` where something would be done; of a message that is a `no_op` the broker's copy goes."""

    outcome: Outcome
    why: str


# --- a batch that Redis decided ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StoredFacts:
    """A decided batch in its slot. `unreadable`: a newer release stored it. `queued`: winners that the slot still shows
    as queued; `lacks_body`: the slot lost what one of them asked for."""

    winners: Sequence[Now] = ()
    queued: int = 0
    unreadable: bool = False
    lacks_body: bool = False


def plan_stored(facts: StoredFacts) -> Plan:
    if facts.unreadable:
        return _waiting("A newer release stored it: its processes bring it to its end.")
    if facts.lacks_body:
        return _waiting("The slot lost its body: the keeper takes that as a loss of Redis, and rebuilds the sale.")
    if facts.queued == 0:
        return Plan(outcome=Outcome.NO_OP, why="None of its reservations waits for an order.")
    without = sum(now.standing is Status.QUEUED for now in facts.winners)
    if without == 0:
        return _planned("Its rows are there, and Redis does not know: it is told.")
    return _planned(f"{_count(without)} stock and no order: the order transaction decides on the stored body.")


# --- a message of the broker ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MessageFacts:
    """A discarded half message, or a dead letter. `sale` None: this database has no such sale. `losers`: those that its
    batch's decision row names. `resumed_by`: the replay whose claim on it is alive."""

    source: Source
    batch: BatchMessage
    sale: Sale | None
    reservations: Sequence[Now] = ()
    losers: frozenset[ReservationId] = frozenset()
    readable: bool = True
    resumed_by: ReplayId | None = None


def taken_by(replay_id: ReplayId) -> str:
    """Of a discarded half message with a claim on it. Whether the claimant came to resume it, its own page says."""
    return f"Replay {replay_id} has taken it, and the broker may be asking again; another replay can after ten minutes."


def plan_message(facts: MessageFacts) -> Plan:
    if facts.sale is None:
        return Plan(outcome=Outcome.REFUSED, why=f"This database has no sale {facts.batch.sale_id}.")
    undecided = _undecided(facts)
    if not undecided:
        return Plan(
            outcome=Outcome.NO_OP, why="Each of its reservations was decided before: it goes off the broker's list."
        )
    if facts.resumed_by is not None:
        return Plan(outcome=Outcome.PENDING, why=taken_by(facts.resumed_by))
    return _plan_undecided(facts, facts.sale, undecided)


def _undecided(facts: MessageFacts) -> list[Now]:
    """Without a row, and no loser of its own batch. Its decision row alone is not enough: it says nothing of winners,
    who after a loss of Redis have no other way to their rows than this message."""
    return [
        now
        for now in facts.reservations
        if now.standing in {Status.QUEUED, *Absence} and now.reservation_id not in facts.losers
    ]


def _plan_undecided(facts: MessageFacts, sale: Sale, undecided: Sequence[Now]) -> Plan:
    how = meeting(sale, facts.batch.epoch)
    if not facts.readable and sale.authority is Authority.REDIS:
        return _waiting("Redis cannot be read, or is lost: its keeper rebuilds it.")
    match how:
        case Meeting.WAITS if facts.batch.epoch > sale.epoch:
            return _waiting(f"It is of epoch {facts.batch.epoch}, the sale's row of {sale.epoch}: an old database?")
        case Meeting.WAITS:
            return _waiting("The sale's stock is being loaded: seconds, as a rule.")
        case Meeting.OWN_RECORDS:
            return _planned(f"{_of_own_epoch(undecided)} {_ACT[facts.source]}")
        case Meeting.OLDER_BY_SQL | Meeting.OLDER_BY_REDIS:
            return _planned(
                f"{len(undecided)} of its reservations, of an older epoch, can still end in a row. {_ACT[facts.source]}"
            )
        case unreachable:
            assert_never(unreachable)


def _of_own_epoch(undecided: Sequence[Now]) -> str:
    queued = sum(now.standing is Status.QUEUED for now in undecided)
    return f"{_count(queued)} stock and no order." if queued else "Nothing was deducted for it."


_ACT = {
    Source.DISCARDED: "The broker is to ask about it again, from the first question.",
    Source.DEAD_LETTER: "The order transaction decides on its body.",
    Source.IN_DOUBT: "",
}

# ----------------------------------------------------------------------------------------------------------------------


def _planned(why: str) -> Plan:
    return Plan(outcome=Outcome.PLANNED, why=why)


def _waiting(why: str) -> Plan:
    return Plan(outcome=Outcome.WAITING, why=why)


def _count(reservations: int) -> str:
    return "1 reservation holds" if reservations == 1 else f"{reservations} reservations hold"
