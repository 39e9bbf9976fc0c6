"""The road of a sale's authority (design §3.3), as decisions: what the leader does next, and what a batch message
meets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from service.domain.sale import Authority, Sale, SaleStatus, ServerIds


class Step(StrEnum):
    STAY = "stay"
    DISMISS_REPORT = "dismiss_report"
    """The report names a server that is neither the leader's nor the stamp's: a misrouted process, not a loss."""
    LEAVE_REDIS = "leave_redis"
    """redis -> sql: a loss, or a planned change."""
    BEGIN_LOADING = "begin_loading"
    """sql | loading -> loading: a new attempt is a new epoch."""
    GIVE_UP_LOADING = "give_up_loading"
    """loading -> sql: Redis stays away."""


REDIS_AWAY_S = 10.0
"""Away for longer than a restart or a failover takes, Redis counts as lost: SQL turns what is queued into orders."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What the leader finds at the sale's slots.

    `server` is None where Redis does not answer, and has not for `away_s`; `stamped` where every slot is still the one
    that was loaded in this epoch.
    """

    server: ServerIds | None
    stamped: bool
    away_s: float = 0.0


def wanted_authority(sale: Sale) -> Authority:
    """Where this sale should be: on SQL before it is warmed, after it is settled, or if that is its home."""
    if sale.status is SaleStatus.SETTLED or not sale.wants_redis:
        return Authority.SQL
    return sale.rules.wanted_authority


def next_step(sale: Sale, health: Health, *, drained: bool) -> Step:
    """One step of the road, from the row and what the leader sees. `drained`: older messages had their turn, or the
    bound."""
    if sale.authority is Authority.REDIS:
        return _step_from_redis(sale, health)
    if wanted_authority(sale) is Authority.SQL or health.server is None:
        return Step.GIVE_UP_LOADING if sale.authority is Authority.LOADING else Step.STAY
    if sale.authority is Authority.SQL and not drained:
        return Step.STAY
    return Step.BEGIN_LOADING


def _step_from_redis(sale: Sale, health: Health) -> Step:
    if wanted_authority(sale) is Authority.SQL:
        return Step.LEAVE_REDIS
    if health.server is None:
        # Away for a moment is not lost: when it answers again, its ids say which. Every call fails meanwhile.
        gone = sale.lost is not None or health.away_s >= REDIS_AWAY_S
        return Step.LEAVE_REDIS if gone else Step.STAY
    if not health.stamped:
        return Step.LEAVE_REDIS
    if sale.lost is None:
        return Step.STAY
    return Step.LEAVE_REDIS if sale.lost == health.server else Step.DISMISS_REPORT


class Meeting(StrEnum):
    """How a batch message that comes for its orders meets the authority (design §3.3, §3.4)."""

    OWN_RECORDS = "own_records"
    """Its epoch is Redis's: the records of this batch are its winners."""
    OLDER_BY_SQL = "older_by_sql"
    """An older epoch's, and SQL decides: the order transaction alone."""
    OLDER_BY_REDIS = "older_by_redis"
    """An older epoch's, and Redis decides again: it is reserved again first."""
    WAITS = "waits"
    """Loading, or this process's view is behind the message."""


def meeting(sale: Sale, epoch: int) -> Meeting:
    if epoch > sale.epoch or sale.authority is Authority.LOADING:
        return Meeting.WAITS
    if sale.authority is Authority.REDIS:
        return Meeting.OWN_RECORDS if epoch == sale.epoch else Meeting.OLDER_BY_REDIS
    return Meeting.OLDER_BY_SQL
