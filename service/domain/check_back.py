"""The verdict of a check-back, from what the stores say (design §3.2). Pure: `core/check_back.py` asks the stores."""

from __future__ import annotations

from enum import StrEnum

from service.domain.ids import ReservationId
from service.domain.stock import BatchRecord, FenceWritten, Lost, ReserveAnswer, Won


class Verdict(StrEnum):
    """The answer to a check-back, and to the broker at the end of a half message."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


OLDER_EPOCH_GRACE_S = 10
"""How long after an epoch change an older epoch's half message is answered UNKNOWN: winners' own messages come first,
and those that their senders commit are there within a second (design §3.2 allows 60 s at most)."""


def verdict_of_answers(answers: dict[ReservationId, ReserveAnswer]) -> Verdict:
    """After reserve.lua: a winner commits; only losers, or all decided by other batches, roll back."""
    return Verdict.COMMIT if any(isinstance(answer, Won) for answer in answers.values()) else Verdict.ROLLBACK


def verdict_of_sql(
    candidates: frozenset[ReservationId], *, ordered: frozenset[ReservationId], losers: frozenset[ReservationId] | None
) -> Verdict | None:
    """What SQL knows of a batch: `ordered` are ids with a row of this batch, `losers` its decision row. None:
    nothing."""
    if ordered:
        return Verdict.COMMIT
    if losers is None:
        return None
    return Verdict.ROLLBACK if losers >= candidates else Verdict.COMMIT


def verdict_of_slot(reply: BatchRecord | FenceWritten | Lost) -> Verdict:
    """What resolve.lua concluded: `lost` means that this Redis cannot know."""
    match reply:
        case BatchRecord(winners=winners):
            return Verdict.COMMIT if winners else Verdict.ROLLBACK
        case FenceWritten():
            return Verdict.ROLLBACK
        case Lost():
            return Verdict.UNKNOWN


def verdict_of_older_epoch(now_ms: int, epoch_started_at_ms: int, grace_s: float = OLDER_EPOCH_GRACE_S) -> Verdict:
    """An older epoch's batch ends in rows whatever Redis says: UNKNOWN for a bounded time, then COMMIT."""
    return Verdict.COMMIT if now_ms >= epoch_started_at_ms + grace_s * 1000 else Verdict.UNKNOWN
