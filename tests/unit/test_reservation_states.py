"""The states of a reservation: what follows what (design §1)."""

from __future__ import annotations

import pytest

from service.domain.event import EVENT_OF
from service.domain.reservation import FINAL, HOLDS_STOCK, TRANSITIONS, Reason, Status
from tests.fixtures.domain import NOW, an_order


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert {Status.CANCELLED, Status.REJECTED, Status.REFUNDED} == FINAL


def test_nothing_follows_a_final_state() -> None:
    assert not [onward for before in FINAL for onward in TRANSITIONS[before]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Status.CANCELLED, Status.PAID),
        (Status.AWAITING_PAYMENT, Status.QUEUED),
        (Status.PAID, Status.CANCELLED),
        (Status.QUEUED, Status.PAID),
        (Status.AWAITING_PAYMENT, Status.REJECTED),
        (Status.PAID, Status.AWAITING_PAYMENT),
    ],
)
def test_what_would_contradict_what_a_buyer_was_told_is_no_transition(before: Status, after: Status) -> None:
    assert after not in TRANSITIONS[before]


def test_every_state_can_come_to_an_end() -> None:
    for status in Status:
        reached, frontier = {status}, {status}
        while frontier:
            frontier = {onward for it in frontier for onward in TRANSITIONS[it]} - reached
            reached |= frontier
        assert reached & FINAL, status


def test_a_state_holds_stock_until_it_is_final() -> None:
    assert {status for status in Status if status not in FINAL} == HOLDS_STOCK


@pytest.mark.parametrize(("restocked", "holds"), [(False, True), (True, False)])
def test_a_refunded_order_keeps_its_unit_unless_it_was_restocked(restocked: bool, holds: bool) -> None:
    assert an_order(Status.REFUNDED, restocked=restocked).holds_stock is holds


def test_every_state_of_an_order_has_its_event() -> None:
    assert set(EVENT_OF) == set(Status) - {Status.QUEUED}
    assert len(set(EVENT_OF.values())) == len(EVENT_OF)


def test_a_deadline_is_shown_only_while_payment_is_awaited() -> None:
    assert an_order().as_reservation().expires_at_ms == NOW + 900_000
    assert an_order(Status.PAID).as_reservation().expires_at_ms is None


def test_the_words_of_a_reason_are_public_and_stay() -> None:
    assert {str(reason) for reason in Reason} >= {
        "buyer_cancelled",
        "payment_timeout",
        "not_confirmed",
        "sold_out",
        "limit_reached",
    }
