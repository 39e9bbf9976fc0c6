"""What a sale's row alone says to a new request (design §3.1, §3.3)."""

from __future__ import annotations

import pytest

from service.domain.sale import (
    AUTHORITY_TRANSITIONS,
    SALE_TRANSITIONS,
    SQL_DRAIN_MS,
    Authority,
    Gate,
    OnRedisLoss,
    SaleStatus,
    ServerIds,
    gate,
    older_may_still_win,
)
from tests.fixtures.domain import NOW, a_sale

LOST = ServerIds(run_id="r", replid="p")


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (SaleStatus.DRAFT, Gate.NOT_OPEN),
        (SaleStatus.READY, Gate.NOT_OPEN),
        (SaleStatus.OPEN, Gate.REDIS),
        (SaleStatus.CLOSED, Gate.CLOSED),
        (SaleStatus.SETTLED, Gate.CLOSED),
    ],
)
def test_only_an_open_sale_sells(status: SaleStatus, wanted: Gate) -> None:
    assert gate(a_sale(status=status), NOW) is wanted


@pytest.mark.parametrize(
    ("opens", "closes", "wanted"),
    [
        (NOW, NOW + 1, Gate.REDIS),
        (NOW + 1, None, Gate.NOT_OPEN),
        (None, NOW, Gate.CLOSED),
        (NOW - 2, NOW - 1, Gate.CLOSED),
    ],
)
def test_an_open_sale_sells_inside_its_window(opens: int | None, closes: int | None, wanted: Gate) -> None:
    assert gate(a_sale(opens_at_ms=opens, closes_at_ms=closes), NOW) is wanted


def test_a_reported_loss_shuts_the_gate() -> None:
    assert gate(a_sale(lost=LOST), NOW) is Gate.SHUT


def test_nothing_is_sold_while_redis_is_loaded() -> None:
    assert gate(a_sale(authority=Authority.LOADING), NOW) is Gate.SHUT


@pytest.mark.parametrize(
    ("wanted_authority", "on_loss", "older_deadline_ms", "since_ms", "wanted"),
    [
        (Authority.SQL, OnRedisLoss.REJECT, None, 0, Gate.SQL),
        (Authority.REDIS, OnRedisLoss.REJECT, None, SQL_DRAIN_MS, Gate.SHUT),
        (Authority.REDIS, OnRedisLoss.SQL, NOW + 9, SQL_DRAIN_MS - 1, Gate.SHUT),
        (Authority.REDIS, OnRedisLoss.SQL, NOW + 9, SQL_DRAIN_MS, Gate.SQL),
        (Authority.REDIS, OnRedisLoss.SQL, None, 0, Gate.SQL),
    ],
)
def test_sql_sells_at_home_or_to_bridge_a_loss_once_older_messages_had_their_turn(
    wanted_authority: Authority, on_loss: OnRedisLoss, older_deadline_ms: int | None, since_ms: int, wanted: Gate
) -> None:
    sale = a_sale(
        authority=Authority.SQL,
        wanted=wanted_authority,
        on_redis_loss=on_loss,
        older_deadline_ms=older_deadline_ms,
        epoch_started_at_ms=NOW - since_ms,
    )
    assert gate(sale, NOW) is wanted


@pytest.mark.parametrize(("deadline", "may"), [(None, False), (NOW, False), (NOW + 1, True)])
def test_a_409_is_final_once_no_older_candidate_can_win(deadline: int | None, may: bool) -> None:
    assert older_may_still_win(a_sale(older_deadline_ms=deadline), NOW) is may


def test_a_settled_sale_has_no_way_back() -> None:
    onward = {status for (before, _), status in SALE_TRANSITIONS.items() if before is SaleStatus.SETTLED}
    assert onward == {SaleStatus.SETTLED}


def test_every_act_is_repeatable() -> None:
    for (_, act), after in SALE_TRANSITIONS.items():
        assert SALE_TRANSITIONS[after, act] is after


def test_only_a_finished_load_keeps_its_epoch() -> None:
    assert [road for road, growth in AUTHORITY_TRANSITIONS.items() if growth == 0] == [
        (Authority.LOADING, Authority.REDIS)
    ]
    assert (Authority.SQL, Authority.REDIS) not in AUTHORITY_TRANSITIONS, "Redis is never trusted without a load"
