"""Ids are made before anything is written, and say where they live."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.ids import (
    SALE_ID,
    BuyerId,
    ReservationId,
    SaleId,
    buyer_tag,
    event_id,
    home_segment,
    new_batch_id,
    order_no,
    parse_reservation_id,
    reservation_id,
    sale_of,
    unkeyed_reservation_id,
)

SALES = st.text("abz019_-", max_size=47).map(lambda rest: SaleId("a" + rest))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(sale=SALES, buyer=TEXTS.map(BuyerId), key=TEXTS, segments=st.integers(1, 64))
def test_an_id_says_its_sale_and_its_buyers_home(sale: SaleId, buyer: BuyerId, key: str, segments: int) -> None:
    id_ = reservation_id(sale, buyer, key)
    assert id_ == reservation_id(sale, buyer, key)
    assert sale_of(id_) == sale
    parsed = parse_reservation_id(id_)
    assert parsed is not None
    assert parsed[0] == sale
    assert parsed[1].startswith(buyer_tag(buyer))
    other = reservation_id(sale, buyer, key + "x")
    assert other != id_
    assert home_segment(id_, segments) == home_segment(other, segments) < segments


def test_the_parts_of_an_id_do_not_run_into_each_other() -> None:
    sale = SaleId("s")
    assert reservation_id(sale, BuyerId("ab"), "c") != reservation_id(sale, BuyerId("a"), "bc")
    assert reservation_id(sale, BuyerId("ä"), "") != reservation_id(sale, BuyerId("a"), "\u0308")


@pytest.mark.parametrize("other", ["Anna", "anna ", "ánna", "a\u0301nna"])
def test_buyers_that_only_look_alike_are_different(other: str) -> None:
    sale = SaleId("s")
    assert reservation_id(sale, BuyerId("anna"), "k") != reservation_id(sale, BuyerId(other), "k")


def test_home_segments_share_the_buyers_evenly() -> None:
    buyers = [reservation_id(SaleId("s"), BuyerId(f"b{n}"), "k") for n in range(4_000)]
    counts = [sum(home_segment(id_, 8) == segment for id_ in buyers) for segment in range(8)]
    assert min(counts) > 400


def test_requests_without_a_key_are_different_attempts() -> None:
    assert len({unkeyed_reservation_id(SaleId("s"), BuyerId("b")) for _ in range(100)}) == 100


GOOD = reservation_id(SaleId("sale"), BuyerId("b"), "k")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sale",
        "sale.",
        GOOD.upper(),
        GOOD + "a",
        GOOD[:-1],
        GOOD + "\n",
        " " + GOOD,
        "sa/le." + GOOD[5:],
        "." + GOOD,
    ],
)
def test_what_is_no_reservation_id_is_told_apart(text: str) -> None:
    assert parse_reservation_id(text) is None


@pytest.mark.parametrize("text", ["", "-a", "A", "a" * 49, "a b", "a\n", "ä", "a{b}"])
def test_what_is_no_sale_id_is_told_apart(text: str) -> None:
    assert SALE_ID.fullmatch(text) is None


def test_an_order_number_and_an_event_are_the_same_again() -> None:
    assert order_no(GOOD) == order_no(GOOD) != order_no(ReservationId(GOOD + "x"))
    assert event_id(GOOD, "order.paid") == event_id(GOOD, "order.paid") != event_id(GOOD, "order.cancelled")


def test_each_half_attempt_has_a_new_batch_id() -> None:
    ids = {new_batch_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(re.fullmatch("[a-z2-7]{20}", id_) for id_ in ids)
