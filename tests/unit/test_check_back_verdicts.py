"""The verdict of a check-back, from what the stores say (design §3.2)."""

from __future__ import annotations

import pytest

from service.domain.check_back import (
    OLDER_EPOCH_GRACE_S,
    Verdict,
    verdict_of_answers,
    verdict_of_older_epoch,
    verdict_of_slot,
    verdict_of_sql,
)
from service.domain.ids import BatchId, BuyerId, ReservationId
from service.domain.sale import ServerIds
from service.domain.stock import (
    BatchRecord,
    FenceWritten,
    Known,
    Lost,
    No,
    Record,
    RecordState,
    Refusal,
    ReserveAnswer,
    Won,
)
from tests.fixtures.domain import NOW

A, B = ReservationId("s.a"), ReservationId("s.b")
BOTH, NOBODY = frozenset({A, B}), frozenset[ReservationId]()
KNOWN = Known(
    record=Record(
        reservation_id=A,
        state=RecordState.QUEUED,
        batch_id=BatchId("another"),
        buyer_id=BuyerId("a"),
        quantity=1,
        fingerprint="f",
        created_at_ms=0,
    )
)
LOSER = Refusal(no=No.SEGMENT_EMPTY)


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({A: Won(), B: LOSER}, Verdict.COMMIT),
        ({A: Won(), B: KNOWN}, Verdict.COMMIT),
        ({A: LOSER, B: LOSER}, Verdict.ROLLBACK),
        ({A: KNOWN, B: LOSER}, Verdict.ROLLBACK),
        ({A: KNOWN, B: KNOWN}, Verdict.ROLLBACK),
    ],
)
def test_one_winner_commits_the_batch(answers: dict[ReservationId, ReserveAnswer], wanted: Verdict) -> None:
    assert verdict_of_answers(answers) is wanted


@pytest.mark.parametrize(
    ("ordered", "losers", "wanted"),
    [
        (NOBODY, None, None),
        (frozenset({A}), None, Verdict.COMMIT),
        (frozenset({A}), frozenset({B}), Verdict.COMMIT),
        (frozenset({A}), BOTH, Verdict.COMMIT),
        (NOBODY, BOTH, Verdict.ROLLBACK),
        (NOBODY, frozenset({A}), Verdict.COMMIT),
        (NOBODY, NOBODY, Verdict.COMMIT),
    ],
)
def test_sql_knows_a_batch_by_its_orders_or_its_decision(
    ordered: frozenset[ReservationId], losers: frozenset[ReservationId] | None, wanted: Verdict | None
) -> None:
    assert verdict_of_sql(BOTH, ordered=ordered, losers=losers) is wanted


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (BatchRecord(winners=frozenset({A})), Verdict.COMMIT),
        (BatchRecord(winners=NOBODY), Verdict.ROLLBACK),
        (FenceWritten(), Verdict.ROLLBACK),
        (Lost(found=ServerIds(run_id="r", replid="p")), Verdict.UNKNOWN),
    ],
)
def test_a_redis_that_cannot_know_says_unknown_and_never_rollback(
    reply: BatchRecord | FenceWritten | Lost, wanted: Verdict
) -> None:
    assert verdict_of_slot(reply) is wanted


@pytest.mark.parametrize(
    ("age_ms", "wanted"),
    [
        (0, Verdict.UNKNOWN),
        (OLDER_EPOCH_GRACE_S * 1000 - 1, Verdict.UNKNOWN),
        (OLDER_EPOCH_GRACE_S * 1000, Verdict.COMMIT),
    ],
)
def test_an_older_epochs_batch_commits_after_a_bounded_time(age_ms: int, wanted: Verdict) -> None:
    assert verdict_of_older_epoch(NOW, NOW - age_ms) is wanted
