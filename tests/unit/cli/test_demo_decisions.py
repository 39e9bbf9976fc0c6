"""The demo's pure parts: who does what, what may be told after what, what the figures mean."""

from __future__ import annotations

import shlex
import shutil
import sys
from array import array
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from service.cli.demo.command import our_name
from service.cli.demo.figures import percentile
from service.cli.demo.plan import (
    Charge,
    Deed,
    backoff_s,
    first_wave_buyer,
    payment_window_s,
    second_wave,
    second_wave_buyer,
    stock_for,
)
from service.cli.demo.report import Books, Report, books
from service.cli.demo.server import environment
from service.cli.demo.witness import MAY_BE_TOLD_AFTER, Witness
from service.domain.reservation import FINAL, Status


def test_the_same_seed_gives_the_same_people():
    assert [first_wave_buyer(7, n) for n in range(50)] == [first_wave_buyer(7, n) for n in range(50)]
    assert [first_wave_buyer(7, n) for n in range(50)] != [first_wave_buyer(8, n) for n in range(50)]


def test_about_seven_in_ten_pay():
    deeds = Counter(first_wave_buyer(1, n).deed for n in range(5_000))
    assert 0.66 < deeds[Deed.PAY] / 5_000 < 0.74
    assert all(deeds[deed] > 50 for deed in Deed)
    charges = Counter(first_wave_buyer(1, n).charge for n in range(5_000))
    assert all(charges[charge] > 30 for charge in Charge)


def test_who_comes_back_pays_and_keeps_the_key():
    first, second = first_wave_buyer(1, 9), second_wave_buyer(1, 9)
    assert (second.id, second.key) == (first.id, first.key)
    assert all(second_wave_buyer(1, n).deed is Deed.PAY for n in range(100))


def test_the_window_grows_with_the_stock():
    assert payment_window_s(30) == 6
    assert payment_window_s(1_000) == 30
    assert payment_window_s(90_000) == 60


def test_however_many_come_there_are_fewer_units_than_people():
    assert [stock_for(buyers) for buyers in (1, 500, 20_000, 100_000)] == [1, 25, 1_000, 1_000]


@pytest.mark.parametrize(
    ("started_as", "on_path", "name"),
    [
        (".venv/bin/dropgate", None, ".venv/bin/dropgate"),
        ("/opt/bin/dropgate", "/opt/bin/dropgate", "dropgate"),
        ("/opt/bin/dropgate", "/other/dropgate", "/opt/bin/dropgate"),
        ("/src/service/__main__.py", "/opt/bin/dropgate", f"{shlex.quote(sys.executable)} -m service"),
    ],
)
def test_what_it_prints_at_the_end_can_be_pasted(monkeypatch, started_as, on_path, name):
    monkeypatch.setattr(sys, "argv", [started_as])
    monkeypatch.setattr(shutil, "which", lambda _name: on_path)
    assert our_name() == name


def test_more_people_come_back_than_units():
    assert second_wave([5, 6, 7, 8, 9], 1) == [5, 6, 7]
    assert second_wave([5], 0) == []
    assert second_wave([], 3) == []


def test_a_client_waits_as_long_as_it_is_told_or_ever_longer():
    assert backoff_s(0, 2.0, 0.0) == 2.0
    assert backoff_s(0, 2.0, 1.0) == 2.5
    assert backoff_s(0, None, 0.0) < backoff_s(1, None, 0.0) < backoff_s(9, None, 0.0) == 2.0


def of(status: str, **facts: object) -> dict[str, object]:
    return {"id": "drop.x", "status": status} | facts


def heard(*statuses: str) -> list[str]:
    witness = Witness()
    for status in statuses:
        witness.reservation(of(status))
    return witness.contradictions


@pytest.mark.parametrize(
    "statuses",
    [
        ("queued", "awaiting_payment", "paid", "refunded"),
        ("queued", "queued", "paid"),
        ("queued", "cancelled", "cancelled"),
        ("queued", "rejected"),
        ("awaiting_payment", "under_review", "paid"),
    ],
)
def test_a_story_that_goes_on_is_no_contradiction(statuses):
    assert heard(*statuses) == []


@pytest.mark.parametrize(
    "statuses",
    [
        ("awaiting_payment", "queued"),
        ("paid", "cancelled"),
        ("cancelled", "paid"),
        ("rejected", "queued"),
        ("paid", "rejected"),
    ],
)
def test_a_story_that_turns_back_is_one(statuses):
    assert len(heard(*statuses)) == 1


def test_nothing_follows_a_final_state():
    assert all(MAY_BE_TOLD_AFTER[status] == {status} for status in FINAL)


def test_sold_out_binds_nothing_unless_final():
    witness = Witness()
    witness.refused("drop.x", "sold_out", final=False)
    witness.reservation(of("queued"))
    assert witness.contradictions == []
    witness = Witness()
    witness.refused("drop.x", "sold_out", final=True)
    witness.reservation(of("queued"))
    assert len(witness.contradictions) == 1


def test_who_was_told_of_a_reservation_is_not_told_sold_out_or_404():
    witness = Witness()
    witness.reservation(of("queued"))
    witness.refused("drop.x", "sold_out", final=False)
    witness.unknown("drop.x")
    assert len(witness.contradictions) == 2


def test_what_was_said_of_price_and_number_stays():
    witness = Witness()
    witness.reservation(of("queued", amount=4900, order_no=None))
    witness.reservation(of("awaiting_payment", amount=4900, order_no="DG-1"))
    witness.reservation(of("paid", amount=5900, order_no="DG-1"))
    assert witness.contradictions == ["drop.x: told amount 4900, later 5900"]
    assert witness.statuses()[Status.PAID] == 1
    assert witness.told("drop.x") is Status.PAID


def test_percentiles_are_by_nearest_rank():
    hundred = array("d", range(1, 101))
    assert (percentile(hundred, 0.5), percentile(hundred, 0.99)) == (50, 99)
    assert percentile(array("d", [3.0]), 0.99) == 3.0
    assert percentile(array("d"), 0.5) is None


LEDGER = {
    "balanced": True,
    "quiet": True,
    "problems": [],
    "sql": {
        "initial": 10,
        "adjusted": 0,
        "available": 2,
        "awaiting_payment": 0,
        "paid": 8,
        "refunded_kept": 0,
        "under_review": 0,
        "payments_succeeded": 9,
        "refunds": 1,
    },
    "segments": [{"segment": 0, "readable": True, "available": 2}],
}


def a_report() -> Report:
    return Report(
        buyers=20,
        stock=10,
        seed=1,
        accepted=10,
        refused=10,
        retries={},
        asked_again=2,
        told_again={"got their reservation again": 1, "heard sold out again": 1},
        replayed=1,
        paid=8,
        cancelled=1,
        expired=1,
        paid_late=1,
        refunds_told=1,
        resold=0,
        lost=0,
        in_doubt=0,
        contradictions=(),
        unexpected={},
        accept_p50_ms=12.0,
        accept_p99_ms=80.0,
        rush_s=1.0,
        rush_requests_per_s=21.0,
        total_s=9.0,
        books=books(LEDGER),
    )


def test_a_report_without_problems_is_ok():
    report = a_report()
    assert report.ok
    assert report.view()["ok"] is True
    assert report.view()["oversold"] == 0
    assert "✗" not in "".join(cell for row in report.rows() for cell in row)


def with_books(**changes: Any) -> Books:
    return replace(books(LEDGER), **changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"books": with_books(balanced=False)}, "does not balance"),
        ({"books": with_books(problems=("I1: …",), balanced=False)}, "I1: …"),
        ({"books": with_books(quiet=False)}, "quiet"),
        ({"books": with_books(live=11)}, "1 units were sold that do not exist"),
        ({"books": with_books(awaiting_payment=1)}, "nobody will make"),
        ({"lost": 1}, "never ended"),
        ({"in_doubt": 1}, "do not know"),
        ({"paid": 9}, "told that they paid"),
        ({"refunds_told": 2}, "refunds were announced"),
        ({"contradictions": ("x: told paid, later cancelled",)}, "Contradiction"),
        ({"unexpected": {"500 internal_error": 2}}, "2 times"),
    ],
)
def test_each_thing_that_is_wrong_is_said(changes, problem):
    report = replace(a_report(), **changes)
    assert not report.ok
    assert any(problem in sentence for sentence in report.problems())


def test_a_segment_that_cannot_be_read_gives_no_figure():
    found = books(LEDGER | {"segments": [{"segment": 0, "readable": False, "available": None}]})
    assert found.redis_available is None


def test_the_demo_never_touches_the_stores_of_its_caller():
    outside = {"DROPGATE_DATABASE_URL": "mysql+aiomysql://live", "DROPGATE_HOME": "live", "PATH": "/bin"}
    inside = environment(outside, 6)
    assert (
        inside["DROPGATE_DATABASE_URL"] == inside["DROPGATE_REDIS_URL"] == inside["DROPGATE_BROKER_URL"] == "embedded"
    )
    assert "DROPGATE_HOME" not in inside
    assert inside["PATH"] == "/bin"
    assert inside["DROPGATE_PAYMENT_WINDOW_S"] == "6"
