"""The pure decision of the order transaction (design §3.4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.ids import BuyerId, order_no
from service.domain.order import Claim, Decision, EndRefused, Order, Owed, cancel, decide_orders
from service.domain.reservation import Reason, Status
from service.domain.stock import Effect
from tests.fixtures.domain import NOW, a_claim, a_sale, an_order

ANNA = BuyerId("anna")


def test_a_winner_becomes_an_order_that_awaits_payment() -> None:
    decision = decide_orders(a_sale(), [a_claim(quantity=1)], rows={}, buyer_units={}, now_ms=NOW)
    (order,) = decision.accepted
    assert (order.status, order.amount, order.currency) == (Status.AWAITING_PAYMENT, 4_990, "EUR")
    assert (order.created_at_ms, order.ordered_at_ms) == (NOW - 5, NOW)
    assert order.expires_at_ms == NOW + 900_000, "the window counts from the order, not from the reservation"
    assert order.order_no == order_no(order.id)
    assert (order.epoch, decision.owed) == (3, ())


@pytest.mark.parametrize(
    ("available", "held", "claim", "reason", "effect"),
    [
        (0, 0, a_claim(), Reason.SOLD_OUT, Effect.WRITE_OFF),
        (1, 0, a_claim(quantity=2), Reason.SOLD_OUT, Effect.WRITE_OFF),
        (9, 2, a_claim(), Reason.LIMIT_REACHED, Effect.RETURN),
        (9, 0, a_claim(quantity=3), Reason.LIMIT_REACHED, Effect.RETURN),
        (0, 2, a_claim(), Reason.LIMIT_REACHED, Effect.WRITE_OFF),
        (0, 0, a_claim(deadline_ms=NOW), Reason.NOT_CONFIRMED, Effect.WRITE_OFF),
        (9, 0, a_claim(deadline_ms=NOW), Reason.NOT_CONFIRMED, Effect.RETURN),
        (9, 0, a_claim(rejected=Reason.SOLD_OUT, holds_redis=False), Reason.SOLD_OUT, None),
        (0, 0, a_claim(holds_redis=False), Reason.SOLD_OUT, None),
        (9, 0, a_claim(deadline_ms=NOW, holds_redis=False), Reason.NOT_CONFIRMED, None),
    ],
)
def test_a_rejection_says_why_and_what_becomes_of_the_redis_unit(
    available: int, held: int, claim: Claim, reason: Reason, effect: Effect | None
) -> None:
    sale = a_sale(available=available, limit=2)
    decision = decide_orders(sale, [claim], rows={}, buyer_units={ANNA: held}, now_ms=NOW)
    (order,) = decision.rejected
    assert (order.status, order.reason) == (Status.REJECTED, reason)
    assert (order.order_no, order.expires_at_ms, order.holds_stock) == (None, None, False)
    assert [owed.effect for owed in decision.owed] == ([] if effect is None else [effect])
    assert all(owed.epoch == sale.epoch for owed in decision.owed)


def test_a_claim_is_in_time_until_its_deadline_is_reached() -> None:
    decision = decide_orders(a_sale(), [a_claim(deadline_ms=NOW + 1)], rows={}, buyer_units={}, now_ms=NOW)
    assert len(decision.accepted) == 1


def test_a_smaller_claim_still_fits_where_a_larger_one_did_not() -> None:
    claims = [a_claim("anna", quantity=3), a_claim("bert", quantity=2)]
    decision = decide_orders(a_sale(available=2, limit=9), claims, rows={}, buyer_units={}, now_ms=NOW)
    assert [order.buyer_id for order in decision.accepted] == ["bert"]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.QUEUED])
def test_a_row_that_is_met_decides_for_itself(status: Status) -> None:
    row = an_order(status, restocked=status is Status.REFUNDED)
    decision = decide_orders(a_sale(available=0), [a_claim()], rows={row.id: row}, buyer_units={}, now_ms=NOW)
    assert decision.existing == (row,)
    assert (decision.accepted, decision.rejected, decision.owed) == ((), (), ())
    assert decision.owed_before == (), "what was owed has been applied and cleared: its record has ended"


@pytest.mark.parametrize("effect", [Effect.RETURN, Effect.WRITE_OFF])
@pytest.mark.parametrize("available", [0, 9])
def test_what_a_final_row_owes_is_what_was_chosen_when_it_ended(effect: Effect, available: int) -> None:
    """F31 with F03: whatever SQL has left by now."""
    row, sale = an_order(Status.REJECTED), a_sale(available=available)
    owed = Owed(reservation_id=row.id, sale_id=sale.id, segment=0, epoch=sale.epoch, effect=effect)
    met = decide_orders(sale, [a_claim()], rows={row.id: row}, buyer_units={}, now_ms=NOW, owed={row.id: owed})
    assert (met.owed, met.owed_before) == ((), (owed,))
    older = {row.id: replace(owed, epoch=sale.epoch - 1)}
    met = decide_orders(sale, [a_claim()], rows={row.id: row}, buyer_units={}, now_ms=NOW, owed=older)
    assert met.owed_before == (), "of another epoch: the load has settled it"


BUYERS = st.sampled_from(["anna", "bert", "carl"])
CLAIMS = st.lists(
    st.builds(
        a_claim,
        BUYERS,
        key=st.sampled_from(["1", "2", "3"]),
        quantity=st.integers(1, 4),
        holds_redis=st.booleans(),
        deadline_ms=st.sampled_from([None, NOW, NOW + 1]),
        rejected=st.sampled_from([None, None, Reason.LIMIT_REACHED]),
    ),
    max_size=12,
)


@given(
    claims=CLAIMS,
    available=st.integers(0, 6),
    limit=st.integers(1, 4),
    held=st.dictionaries(BUYERS.map(BuyerId), st.integers(0, 4)),
    met=st.sets(st.integers(0, 11)),
)
def test_whatever_comes_nothing_is_sold_that_is_not_there(
    claims: list[Claim], available: int, limit: int, held: dict[BuyerId, int], met: set[int]
) -> None:
    ids = [claim.candidate.reservation_id for claim in claims]
    rows = {ids[n]: an_order(Status.CANCELLED, id_=ids[n]) for n in met if n < len(ids)}
    sale = a_sale(available=available, limit=limit)

    decision = decide_orders(sale, claims, rows=rows, buyer_units=held, now_ms=NOW)

    assert _units(decision) <= available
    taken: Counter[BuyerId] = Counter()
    for order in decision.accepted:
        taken[order.buyer_id] += order.quantity
    assert all(held.get(buyer, 0) + units <= limit for buyer, units in taken.items())
    decided = [order.id for order in (*decision.accepted, *decision.rejected, *decision.existing)]
    assert Counter(decided) == Counter(set(ids)), "every id once"
    owing = {claim.candidate.reservation_id for claim in claims if claim.holds_redis}
    assert {owed.reservation_id for owed in decision.owed} <= owing
    assert not {owed.reservation_id for owed in decision.owed} & {order.id for order in decision.accepted}


def _units(decision: Decision) -> int:
    return sum(order.quantity for order in decision.accepted)


@given(claims=CLAIMS, available=st.integers(0, 6))
def test_run_again_after_a_lost_answer_it_decides_nothing_new(claims: list[Claim], available: int) -> None:
    sale = a_sale(available=available, limit=2)
    first = decide_orders(sale, claims, rows={}, buyer_units={}, now_ms=NOW)
    rows = {order.id: order for order in (*first.accepted, *first.rejected)}
    left = replace(sale, available=available - _units(first))
    again = decide_orders(left, claims, rows=rows, buyer_units={}, now_ms=NOW + 5)
    assert (again.accepted, again.rejected) == ((), ())
    assert set(again.existing) == set(rows.values())


# --- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (Status.PAID, EndRefused.ALREADY_PAID),
        (Status.UNDER_REVIEW, EndRefused.ALREADY_PAID),
        (Status.CANCELLED, EndRefused.ALREADY_FINAL),
        (Status.REJECTED, EndRefused.ALREADY_FINAL),
        (Status.REFUNDED, EndRefused.ALREADY_FINAL),
    ],
)
def test_only_an_order_that_awaits_payment_is_cancelled(status: Status, refused: EndRefused) -> None:
    assert cancel(an_order(status), Reason.BUYER_CANCELLED) is refused


@pytest.mark.parametrize(("expires_at_ms", "due"), [(NOW - 1, True), (NOW, True), (NOW + 1, False), (None, False)])
def test_an_order_expires_at_its_time_and_not_before(expires_at_ms: int | None, due: bool) -> None:
    order = an_order(expires_at_ms=expires_at_ms)
    ended = cancel(order, Reason.PAYMENT_TIMEOUT, due_before_ms=NOW)
    if not due:
        assert ended is EndRefused.NOT_DUE
        return
    assert isinstance(ended, Order)
    assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.PAYMENT_TIMEOUT)
    assert ended == replace(order, status=Status.CANCELLED, reason=Reason.PAYMENT_TIMEOUT)
