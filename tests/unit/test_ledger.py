"""The ledger says what is wrong, and nothing where nothing is (I1-I4, I6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.domain.ledger import Ledger, SqlTerms
from service.domain.stock import SlotCount
from tests.fixtures.domain import SALE, sql_terms

SLOT = SlotCount(granted=10, available=4, held=6, queued=0, ordered=6, buyers_units=6, undelivered_batches=0)


def _ledger(sql: SqlTerms | None = None, slots: dict[int, SlotCount | None] | None = None) -> Ledger:
    return Ledger(sale_id=SALE, authority="redis", epoch=3, sql=sql or sql_terms(), slots=slots or {})


def test_a_balanced_sale_has_no_problems() -> None:
    assert _ledger().problems() == ()
    assert _ledger(slots={0: SLOT}).balanced


@pytest.mark.parametrize(
    ("changes", "invariants"),
    [
        ({"available": -1, "moved": -1, "initial": 4}, {"I1", "I2"}),
        ({"available": 5, "moved": 5}, {"I1"}),
        ({"moved": 3}, {"I1"}),
        ({"initial": 2, "adjusted": 0, "available": 0, "moved": 0}, {"I1", "I2"}),
        ({"buyers_over_limit": 1}, {"I3"}),
        ({"buyers_units": 7}, {"I3"}),
        ({"payments_succeeded": 5}, {"I6"}),
        ({"refunds": 2}, {"I6"}),
        ({"duplicate_refunds": 1}, {"I6"}),
    ],
)
def test_each_broken_invariant_of_sql_is_named(changes: dict[str, int], invariants: set[str]) -> None:
    assert {problem[:2] for problem in _ledger(sql_terms(**changes)).problems()} == invariants


@pytest.mark.parametrize(
    ("slot", "word"),
    [
        (replace(SLOT, available=-1, granted=5), "negative"),
        (replace(SLOT, granted=11), "granted"),
        (replace(SLOT, ordered=5), "held"),
        (replace(SLOT, buyers_units=5), "buyers"),
        (None, "cannot be read"),
    ],
)
def test_each_broken_invariant_of_a_slot_is_named_with_its_segment(slot: SlotCount | None, word: str) -> None:
    found = _ledger(slots={0: SLOT, 1: slot}).problems()
    assert any("segment 1" in problem and word in problem for problem in found)
    assert not any("segment 0" in problem for problem in found)


def test_both_stores_are_compared_only_when_nothing_is_under_way() -> None:
    short = replace(SLOT, granted=9, available=3)
    assert len(_ledger(slots={0: short}).problems()) == 1
    moving = replace(short, queued=1, ordered=5)
    assert _ledger(slots={0: moving}).problems() == ()
    assert _ledger(sql_terms(owed=1), slots={0: short}).problems() == ()


def test_segments_are_added_up() -> None:
    half = SlotCount(granted=5, available=2, held=3, queued=0, ordered=3, buyers_units=3, undelivered_batches=0)
    assert _ledger(slots={0: half, 1: half}).problems() == ()
