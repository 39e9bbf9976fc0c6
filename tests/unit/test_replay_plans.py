"""What a replay may do with an item, and what became of it: decided from what was found (domain/replay*.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.domain.batch import SCHEMA, BatchMessage, Candidate
from service.domain.errors import InvalidRequest
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId, reservation_id
from service.domain.replay import (
    AGE_MAX_S,
    ID_MAX,
    IDS_MAX,
    WHY_MAX,
    Absence,
    Found,
    Item,
    Now,
    Outcome,
    Replay,
    ReplayId,
    Scope,
    Source,
    Standing,
    batch_may_yet_win,
    check_why,
    is_replay_id,
    new_replay_id,
    outcome_of,
    settle,
    standing_now,
)
from service.domain.replay_plan import MessageFacts, StoredFacts, plan_message, plan_stored
from service.domain.reservation import Reason, Status
from service.domain.sale import Authority, Sale
from service.domain.stock import Record, RecordState
from tests.fixtures.domain import NOW, SALE, a_sale, an_order

ANNA, BERT = (reservation_id(SALE, BuyerId(buyer), "k") for buyer in ("anna", "bert"))
BATCH = BatchId("batch")
OTHER = ReplayId("rp-other")


def now(standing: Standing, id_: ReservationId = ANNA) -> Now:
    return Now(reservation_id=id_, standing=standing)


def batch(epoch: int = 3) -> BatchMessage:
    candidates = [
        Candidate(reservation_id=id_, buyer_id=BuyerId("b"), quantity=1, fingerprint="f") for id_ in (ANNA, BERT)
    ]
    return BatchMessage(
        schema=SCHEMA,
        batch_id=BATCH,
        sale_id=SALE,
        segment=0,
        epoch=epoch,
        created_at_ms=NOW,
        candidates=tuple(candidates),
    )


def message(source: Source = Source.DISCARDED, *, epoch: int = 3, **changes: object) -> MessageFacts:
    """Both of its reservations are queued."""
    both = (now(Status.QUEUED), now(Status.QUEUED, BERT))
    facts = MessageFacts(source=source, batch=batch(epoch), sale=a_sale(), reservations=both)
    return replace(facts, **changes)  # type: ignore[arg-type]


# --- a batch that Redis decided ---------------------------------------------------------------------------------------


def test_a_batch_with_a_winner_without_order_is_planned() -> None:
    plan = plan_stored(StoredFacts(winners=[now(Status.QUEUED), now(Status.PAID, BERT)], queued=1))
    assert (plan.outcome, plan.why.partition(" holds")[0]) == (Outcome.PLANNED, "1 reservation")


def test_rows_that_redis_does_not_know_of_are_told_to_it() -> None:
    plan = plan_stored(StoredFacts(winners=[now(Status.AWAITING_PAYMENT)], queued=1))
    assert (plan.outcome, "Redis does not know" in plan.why) == (Outcome.PLANNED, True)


def test_a_batch_none_of_whose_winners_waits_is_done_already() -> None:
    assert plan_stored(StoredFacts(winners=[now(Status.PAID)], queued=0)).outcome is Outcome.NO_OP


@pytest.mark.parametrize("trouble", [StoredFacts(unreadable=True), StoredFacts(queued=1, lacks_body=True)])
def test_a_batch_that_others_must_mend_waits(trouble: StoredFacts) -> None:
    assert plan_stored(trouble).outcome is Outcome.WAITING


# --- a message that the broker gave up --------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "how"), [(Source.DISCARDED, "broker"), (Source.DEAD_LETTER, "order transaction")])
def test_an_undecided_message_is_planned_in_the_words_of_its_source(source: Source, how: str) -> None:
    plan = plan_message(message(source))
    assert (plan.outcome, how in plan.why) == (Outcome.PLANNED, True)
    assert plan.why.startswith("2 reservations hold stock and no order.")


def test_a_message_for_which_nothing_was_deducted_says_so() -> None:
    plan = plan_message(message(reservations=(now(Absence.NOTHING),)))
    assert (plan.outcome, "Nothing was deducted" in plan.why) == (Outcome.PLANNED, True)


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.QUEUED}))
def test_a_message_whose_reservations_have_rows_is_done_already(status: Status) -> None:
    assert plan_message(message(reservations=(now(status), now(status, BERT)))).outcome is Outcome.NO_OP


def test_a_loser_of_its_batch_is_decided_without_a_row() -> None:
    facts = message(reservations=(now(Status.PAID), now(Absence.NOTHING, BERT)), losers=frozenset({BERT}))
    assert plan_message(facts).outcome is Outcome.NO_OP


def test_a_decision_row_does_not_make_its_winners_decided() -> None:
    """After a loss of Redis the discarded body is their only way to the rows that they were told of."""
    facts = message(epoch=2, reservations=(now(Absence.IN_DOUBT), now(Absence.NOTHING, BERT)), losers=frozenset({BERT}))
    plan = plan_message(facts)
    assert (plan.outcome, plan.why.partition(",")[0]) == (Outcome.PLANNED, "1 of its reservations")


@pytest.mark.parametrize("authority", [Authority.REDIS, Authority.SQL])
def test_an_older_epochs_message_can_still_end_in_rows(authority: Authority) -> None:
    facts = message(epoch=2, sale=a_sale(authority=authority), reservations=(now(Absence.IN_DOUBT),))
    plan = plan_message(facts)
    assert (plan.outcome, "of an older epoch" in plan.why) == (Outcome.PLANNED, True)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"sale": a_sale(authority=Authority.LOADING)}, "loaded"),
        ({"epoch": 4}, "epoch 4"),
        ({"readable": False}, "Redis cannot be read"),
    ],
)
def test_what_cannot_be_decided_now_waits_and_says_for_what(changes: dict[str, object], word: str) -> None:
    plan = plan_message(message(**changes))  # type: ignore[arg-type]
    assert (plan.outcome, word in plan.why) == (Outcome.WAITING, True)


def test_a_message_of_a_sale_that_is_not_here_is_refused() -> None:
    plan = plan_message(message(sale=None))
    assert (plan.outcome, SALE in plan.why) == (Outcome.REFUSED, True)


def test_what_another_replay_has_resumed_is_pending_unless_it_is_decided() -> None:
    plan = plan_message(message(resumed_by=OTHER))
    assert (plan.outcome, OTHER in plan.why) == (Outcome.PENDING, True)
    decided = message(resumed_by=OTHER, reservations=(now(Status.PAID),))
    assert plan_message(decided).outcome is Outcome.NO_OP


# --- how a reservation stands -----------------------------------------------------------------------------------------


def record(state: RecordState) -> Record:
    return Record(
        reservation_id=ANNA,
        state=state,
        batch_id=BATCH,
        buyer_id=BuyerId("anna"),
        quantity=1,
        fingerprint="f",
        created_at_ms=NOW,
    )


def test_a_row_says_more_than_a_record() -> None:
    row = replace(an_order(Status.REJECTED), reason=Reason.SOLD_OUT)
    stands = standing_now(ANNA, Found(row=row, record=record(RecordState.QUEUED), readable=True), may_yet_appear=True)
    assert (stands.standing, stands.reason) == (Status.REJECTED, Reason.SOLD_OUT)


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (RecordState.QUEUED, Status.QUEUED),
        (RecordState.ORDERED, Absence.IN_DOUBT),
        (RecordState.ENDED, Absence.IN_DOUBT),
    ],
)
def test_a_record_whose_row_is_on_its_way_is_in_doubt(state: RecordState, standing: Standing) -> None:
    found = Found(row=None, record=record(state), readable=True)
    assert standing_now(ANNA, found, may_yet_appear=False).standing == standing


@pytest.mark.parametrize(("readable", "may"), [(False, False), (True, True)])
def test_nothing_is_not_said_of_what_may_appear_or_could_not_be_looked_at(readable: bool, may: bool) -> None:
    found = Found(row=None, record=None, readable=readable)
    assert standing_now(ANNA, found, may_yet_appear=may).standing is Absence.IN_DOUBT
    certain = Found(row=None, record=None, readable=True)
    assert standing_now(ANNA, certain, may_yet_appear=False).standing is Absence.NOTHING


def test_an_older_epochs_candidate_may_yet_win_and_its_own_epochs_not() -> None:
    assert not may_yet_win(a_sale(), 3)
    assert may_yet_win(a_sale(), 2)
    assert may_yet_win(a_sale(), 4, closed_at_ms=NOW), "an old database"
    assert may_yet_win(a_sale(authority=Authority.SQL), 3)


def test_an_older_epochs_candidate_may_win_until_its_epoch_is_closed() -> None:
    assert may_yet_win(a_sale(), 2, closed_at_ms=NOW + 1)
    assert not may_yet_win(a_sale(), 2, closed_at_ms=NOW)
    assert may_yet_win(a_sale(authority=Authority.LOADING), 2, closed_at_ms=NOW)


def may_yet_win(sale: Sale, epoch: int, closed_at_ms: int | None = None) -> bool:
    return batch_may_yet_win(sale, epoch, closed_at_ms=closed_at_ms, now_ms=NOW)


# --- what became of it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standings", "outcome"),
    [
        ((Status.AWAITING_PAYMENT,), Outcome.ORDERED),
        ((Status.PAID, Status.REJECTED), Outcome.ORDERED),
        ((Status.REFUNDED,), Outcome.ORDERED),
        ((Status.UNDER_REVIEW,), Outcome.ORDERED),
        ((Status.REJECTED, Status.CANCELLED), Outcome.RELEASED),
        ((Absence.NOTHING,), Outcome.RELEASED),
        ((Status.PAID, Status.QUEUED), Outcome.PENDING),
        ((Status.PAID, Absence.IN_DOUBT), Outcome.PENDING),
    ],
)
def test_its_reservations_say_how_an_item_ended(standings: tuple[Standing, ...], outcome: Outcome) -> None:
    assert outcome_of(now(standing) for standing in standings) is outcome


def test_what_was_left_open_ends_by_its_reservations_and_what_was_decided_stays() -> None:
    item = Item(outcome=Outcome.PENDING, why="begun")
    assert settle(item, (now(Status.QUEUED),)) == replace(item, reservations=(now(Status.QUEUED),))
    assert settle(item, (now(Status.PAID),)).outcome is Outcome.ORDERED
    for left in (Outcome.WAITING, Outcome.PLANNED):
        assert settle(replace(item, outcome=left), (now(Status.PAID),)).outcome is Outcome.ORDERED
        for unsaid in ((), (now(Absence.NOTHING),), (now(Status.PAID), now(Status.QUEUED, BERT))):
            assert settle(replace(item, outcome=left), unsaid).outcome is left
    for decided in (Outcome.ORDERED, Outcome.RELEASED, Outcome.NO_OP, Outcome.REFUSED):
        settled = settle(replace(item, outcome=decided), (now(Status.PAID),))
        assert (settled.outcome, settled.why, settled.reservations) == (decided, "begun", (now(Status.PAID),))


def test_a_look_that_found_nothing_and_has_not_seen_all_is_no_all_clear() -> None:
    scope = Scope(source=Source.DEAD_LETTER)
    look = Replay(id=None, scope=scope, why=None, actor="anna", created_at_ms=1, more=True, items=())
    assert not look.settled
    assert replace(look, more=False).settled


def test_what_a_loser_wins_later_keeps_his_batch_not_pending() -> None:
    reservations = (now(Status.REJECTED), now(Status.QUEUED, BERT))
    assert settle(Item(outcome=Outcome.PENDING, why=""), reservations, {BERT}).outcome is Outcome.RELEASED


@pytest.mark.parametrize(
    ("id_", "outcome", "settled"),
    [
        (None, Outcome.PLANNED, False),
        (None, Outcome.NO_OP, True),
        (None, Outcome.WAITING, False),
        (None, Outcome.REFUSED, False),
        (OTHER, Outcome.PLANNED, False),
        (OTHER, Outcome.WAITING, False),
        (OTHER, Outcome.PENDING, True),
        (OTHER, Outcome.ORDERED, True),
        (OTHER, Outcome.NO_OP, True),
    ],
)
def test_a_replay_is_settled_if_nothing_is_left_for_a_person(
    id_: ReplayId | None, outcome: Outcome, settled: bool
) -> None:
    replay = Replay(
        id=id_,
        scope=Scope(source=Source.IN_DOUBT),
        why=None,
        actor="anna",
        created_at_ms=NOW,
        more=False,
        items=(Item(outcome=Outcome.ORDERED, why=""), Item(outcome=outcome, why="")),
    )
    assert (replay.settled, replay.dry_run) == (settled, id_ is None)


# --- the scope --------------------------------------------------------------------------------------------------------


def test_a_scope_picks_by_sale_by_reservation_or_by_batch() -> None:
    source, carl = Source.DISCARDED, ReservationId("sneaker-01.carl")
    assert Scope(source=source).picks(SALE, BATCH, [ANNA])
    assert not Scope(source=source, sale_id=SaleId("other")).picks(SALE, BATCH, [ANNA])
    assert Scope(source=source, reservation_ids=(carl, ANNA)).picks(SALE, BATCH, [ANNA, BERT])
    assert Scope(source=source, batch_ids=(BATCH,)).picks(SALE, BATCH, [ANNA])
    assert not Scope(source=source, reservation_ids=(carl,), batch_ids=(BatchId("b"),)).picks(SALE, BATCH, [ANNA])


def test_batches_in_doubt_are_found_only_under_their_sale() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Scope(source=Source.IN_DOUBT, batch_ids=(BATCH,)).check()
    assert caught.value.field == "scope.sale"
    Scope(source=Source.IN_DOUBT, batch_ids=(BATCH,), sale_id=SALE).check()
    Scope(source=Source.DISCARDED, batch_ids=(BATCH,)).check()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sale_id": SaleId("No Sale")}, "sale"),
        ({"reservation_ids": (ANNA,) * (IDS_MAX + 1)}, "reservation_ids"),
        ({"reservation_ids": (ReservationId(""),)}, "reservation_ids"),
        ({"batch_ids": (BatchId("a" * (ID_MAX + 1)),)}, "batch_ids"),
        ({"batch_ids": (BatchId("ü" * ID_MAX),)}, "batch_ids"),
        ({"batch_ids": (BatchId("a\x1b[2J"),)}, "batch_ids"),
        ({"older_than_s": -1}, "older_than_s"),
        ({"older_than_s": AGE_MAX_S + 1}, "older_than_s"),
    ],
)
def test_a_scope_has_one_measure_for_every_way_in(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(Scope(source=Source.DISCARDED), **changes).check()
    assert caught.value.field == f"scope.{field}"
    most = (ReservationId("a" * ID_MAX),) * IDS_MAX
    Scope(source=Source.DISCARDED, sale_id=SALE, reservation_ids=most, older_than_s=AGE_MAX_S).check()


@pytest.mark.parametrize("why", ["", "  ", "a\nb", "w" * (WHY_MAX + 1)])
def test_a_reason_is_one_line_that_can_be_read(why: str) -> None:
    with pytest.raises(InvalidRequest):
        check_why(why)
    check_why("w" * WHY_MAX)


def test_an_item_is_called_by_its_batch_its_message_or_the_id_that_was_named() -> None:
    item = Item(outcome=Outcome.REFUSED, why="", message_id="m", batch_id=BATCH, reservations=(now(Absence.NOTHING),))
    assert item.subject == BATCH
    assert replace(item, batch_id=None).subject == "m"
    assert replace(item, batch_id=None, message_id=None).subject == ANNA


def test_replays_have_ids_of_their_own() -> None:
    ids = {new_replay_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(is_replay_id(id_) for id_ in ids)
    assert not any(
        is_replay_id(text) for text in ("", "rp-", "rp-" + "A" * 20, "rp-" + "0" * 21, "rp-" + "0" * 19 + "\n")
    )
