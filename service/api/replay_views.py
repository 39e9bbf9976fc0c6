"""A replay and what got stuck, as a client gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from service.api.views import Moment, View
from service.core.broker_look import BrokerNumbers, DeadLetters
from service.domain.event import rfc3339
from service.domain.replay import Item, Outcome, Replay, Scope, Source
from service.domain.reservation import Reason
from service.ports.messaging import DeadLetter


class StandingView(View, frozen=True, kw_only=True):
    """A reservation now. `status` is one of a reservation, `nothing` (it holds nothing) or `in_doubt` (it may yet
    appear, or a store cannot say)."""

    id: str
    status: str
    reason: Reason | None


class ReplayItemView(View, frozen=True, kw_only=True):
    """One batch or message, or a named id that leads to none."""

    outcome: Outcome
    why: str
    message_id: str | None
    batch_id: str | None
    sale_id: str | None
    age_s: int | None
    reservations: list[StandingView]


class ReplayScopeView(View, frozen=True, kw_only=True):
    source: Source
    sale: str | None
    reservation_ids: list[str]
    batch_ids: list[str]
    older_than_s: int


class ReplayView(View, frozen=True, kw_only=True):
    """A dry run has no `id`: it changed nothing, and is not stored. `more`: run it again for what it did not come to.
    Without `finished_at` it is running, or it ended midway."""

    id: str | None
    dry_run: bool
    scope: ReplayScopeView
    why: str | None
    actor: str
    created_at: Moment
    finished_at: Moment | None
    more: bool
    outcomes: dict[str, int]
    items: list[ReplayItemView]


class InDoubtView(View, frozen=True, kw_only=True):
    """`halves`: half messages without a verdict; `discarded`: those whose check-backs are used up. null: the broker
    cannot say now."""

    items: list[ReplayItemView]
    more: bool
    halves: int | None
    discarded: int | None


class DeadLetterView(View, frozen=True, kw_only=True):
    """`why`: what was said when it died, where the broker keeps it. `bytes`: of its body."""

    group: str
    topic: str
    message_id: str
    key: str
    attempts: int
    bytes: int
    why: str | None
    born_at: Moment
    dead_at: Moment


class DeadLettersView(View, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterView]
    more: bool


def replay_view(replay: Replay, now_ms: int) -> ReplayView:
    finished_ms = replay.finished_at_ms
    return ReplayView(
        id=replay.id,
        dry_run=replay.dry_run,
        scope=_scope(replay.scope),
        why=replay.why,
        actor=replay.actor,
        created_at=rfc3339(replay.created_at_ms),
        finished_at=None if finished_ms is None else rfc3339(finished_ms),
        more=replay.more,
        outcomes=dict(sorted(Counter(item.outcome.value for item in replay.items).items())),
        items=[_item(item, now_ms) for item in replay.items],
    )


def in_doubt_view(looked: Replay, numbers: BrokerNumbers, now_ms: int) -> InDoubtView:
    return InDoubtView(
        items=[_item(item, now_ms) for item in looked.items],
        more=looked.more,
        halves=numbers.halves,
        discarded=numbers.discarded,
    )


def dead_letters_view(found: DeadLetters) -> DeadLettersView:
    return DeadLettersView(dead_letters=_letters(found.letters), more=found.more)


def _scope(scope: Scope) -> ReplayScopeView:
    return ReplayScopeView(
        source=scope.source,
        sale=scope.sale_id,
        reservation_ids=list(scope.reservation_ids),
        batch_ids=list(scope.batch_ids),
        older_than_s=scope.older_than_s,
    )


def _item(item: Item, now_ms: int) -> ReplayItemView:
    return ReplayItemView(
        outcome=item.outcome,
        why=item.why,
        message_id=item.message_id,
        batch_id=item.batch_id,
        sale_id=item.sale_id,
        age_s=item.age_s(now_ms),
        reservations=[
            StandingView(id=now.reservation_id, status=now.standing.value, reason=now.reason)
            for now in item.reservations
        ],
    )


def _letters(letters: Sequence[DeadLetter]) -> list[DeadLetterView]:
    return [
        DeadLetterView(
            group=letter.group,
            topic=letter.topic,
            message_id=letter.message_id,
            key=letter.key,
            attempts=letter.attempts,
            bytes=len(letter.body),
            why=letter.why,
            born_at=rfc3339(letter.born_at_ms),
            dead_at=rfc3339(letter.dead_at_ms),
        )
        for letter in letters
    ]
