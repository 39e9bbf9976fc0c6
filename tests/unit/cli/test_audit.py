"""`dropgate audit`: waits for quiet, shows every term, and its exit code can be trusted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from service.cli import audit
from service.cli.audit import Look, until_quiet
from service.cli.ledger_view import rows_of
from service.domain.ledger import Ledger
from tests.unit.cli.conftest import a_ledger


def test_a_balanced_sale_exits_0_and_marks_every_row(dropgate):
    result = dropgate("audit")
    assert result.exit_code == 0
    assert "✓ Balanced" in result.stdout
    assert "✗" not in result.stdout
    for invariant in ("I1", "I2", "I3", "I4", "I5", "I6"):
        assert invariant in result.stdout


def test_json_has_every_term_and_the_verdict(dropgate):
    found = json.loads(dropgate("audit", "--json").stdout)
    assert found["balanced"] is True
    assert found["quiet"] is True
    (sale,) = found["sales"]
    assert sale["sql"]["paid"] == 60
    assert [(segment["segment"], segment["readable"]) for segment in sale["segments"]] == [(0, True)]
    assert sale["segments"][0]["granted"] == 100
    assert {check["invariant"] for check in sale["checks"]} >= {"I1", "I2", "I3", "I4", "I5", "I6"}
    assert all(check["ok"] for check in sale["checks"])


@pytest.mark.parametrize(
    ("sql", "slot", "problem"),
    [
        ({"paid": 61}, {}, "I1: 100 units in SQL"),
        ({"moved": 31}, {}, "I1: stock movements"),
        ({"buyers_over_limit": 1}, {}, "I3: 1 buyers over the limit"),
        ({"refunds": 2}, {}, "I6: 61 payments"),
        ({}, {"available": 31}, "I1: granted 100"),
        ({}, {"granted": 101, "available": 31}, "I1: SQL has 30 available, Redis 31"),
    ],
)
def test_a_broken_invariant_exits_1_and_says_which(dropgate, bootstrap, monkeypatch, sql, slot, problem):
    monkeypatch.setattr(audit, "LOOK_S", 0.01)
    bootstrap.ledgers.looks = [[a_ledger(sql=sql, slot=slot)]]
    result = dropgate("audit", "--wait", "1")
    assert result.exit_code == 1
    assert problem in result.stdout
    assert "✗ NOT balanced" in result.stdout
    as_json = dropgate("audit", "--wait", "1", "--json")
    assert as_json.exit_code == 1
    found = json.loads(as_json.stdout)
    assert found["balanced"] is False
    assert any(not check["ok"] for check in found["sales"][0]["checks"])


def test_a_slot_that_cannot_be_read_is_not_balanced(dropgate, bootstrap):
    away = a_ledger()
    away.slots[0] = None
    bootstrap.ledgers.looks = [[away]]
    assert dropgate("audit", "--wait", "0").exit_code == 1


def test_one_sale_can_be_asked_for(dropgate, bootstrap):
    bootstrap.ledgers.looks = [[a_ledger("one"), a_ledger("two")]]
    found = json.loads(dropgate("audit", "--sale", "two", "--json").stdout)
    assert [sale["sale_id"] for sale in found["sales"]] == ["two"]
    assert dropgate("audit", "--sale", "three").exit_code == 1


def test_several_sales_end_with_one_verdict(dropgate, bootstrap):
    bootstrap.ledgers.looks = [[a_ledger("one"), a_ledger("two")]]
    assert dropgate("audit").stdout.rstrip().endswith("✓ All 2 sales balance.")
    bootstrap.ledgers.looks = [[a_ledger("one"), a_ledger("two", sql={"paid": 61})]]
    assert "✗ 1 of 2 sales do NOT balance: two" in dropgate("audit", "--wait", "0").stdout


def test_without_sales_there_is_nothing_to_audit(dropgate, bootstrap):
    bootstrap.ledgers.looks = [[]]
    result = dropgate("audit")
    assert result.exit_code == 0
    assert "no sales" in result.stdout


def busy() -> Ledger:
    """10 of the 70 units are on their way to SQL: the two stores cannot be compared yet."""
    return a_ledger(
        sql={"available": 40, "moved": 40, "awaiting_payment": 0, "buyers_units": 60},
        slot={"queued": 10, "ordered": 60, "undelivered_batches": 1},
    )


def looking(looks: list[list[Ledger]]) -> tuple[Look, list[int]]:
    calls: list[int] = []

    async def look() -> list[Ledger]:
        calls.append(1)
        return looks.pop(0) if len(looks) > 1 else looks[0]

    return look, calls


@pytest.mark.parametrize(
    ("sql", "slot", "sentence"),
    [
        ({}, {"queued": 10, "ordered": 60}, "10 units are queued"),
        ({}, {"undelivered_batches": 1}, "1 batch is decided and has no orders yet"),
        ({"owed": 2}, {}, "2 effects are owed to Redis"),
        ({"payments_waiting": 1, "payments_succeeded": 62}, {}, "1 payment waits for its order"),
        ({"adjusting": 1}, {}, "1 adjustment is not finished"),
    ],
)
def test_what_is_still_under_way_after_the_wait_exits_1_and_is_said(dropgate, bootstrap, sql, slot, sentence):
    """It has not looked: the stores could not be compared to the unit."""
    bootstrap.ledgers.looks = [[a_ledger(sql=sql, slot=slot)]]
    result = dropgate("audit", "--wait", "0")
    assert result.exit_code == 1
    assert f"– Under way: {sentence}" in result.stdout
    assert "NOT known" in result.stdout
    assert "✓ Balanced" not in result.stdout
    as_json = dropgate("audit", "--wait", "0", "--json")
    assert as_json.exit_code == 1
    found = json.loads(as_json.stdout)
    assert (found["balanced"], found["quiet"]) == (True, False)
    assert found["sales"][0]["under_way"] == [sentence]


def test_a_sale_on_its_way_to_another_authority_is_not_audited_yet(dropgate, bootstrap):
    bootstrap.ledgers.looks = [[replace(a_ledger(), authority="sql", wanted="redis", slots={})]]
    result = dropgate("audit", "--wait", "0")
    assert result.exit_code == 1
    assert "on its way from sql to redis" in result.stdout


def test_a_batch_that_is_in_doubt_for_too_long_breaks_i5(dropgate, bootstrap):
    overdue = replace(a_ledger(slot={"undelivered_batches": 1}), overdue_s={0: 300})
    bootstrap.ledgers.looks = [[overdue]]
    result = dropgate("audit", "--wait", "0")
    assert result.exit_code == 1
    assert "I5: segment 0 has had a batch without orders for 300 s" in result.stdout
    assert [row.ok for row in rows_of(overdue) if row.invariant == "I5"] == [False]


async def test_it_waits_until_nothing_is_under_way():
    look, calls = looking([[busy()], [busy()], [a_ledger()]])
    (ledger,) = await until_quiet(look, 5, pause_s=0.001)
    assert ledger.quiet
    assert len(calls) == 3


async def test_a_difference_seen_once_is_looked_at_again():
    """The stores are read one after the other: a unit on its way between the reads is no loss."""
    look, calls = looking([[a_ledger(slot={"granted": 101, "available": 31})], [a_ledger()]])
    (ledger,) = await until_quiet(look, 5, pause_s=0.001)
    assert ledger.balanced
    assert len(calls) == 2


async def test_a_difference_seen_twice_in_quiet_ends_the_wait():
    look, calls = looking([[a_ledger(slot={"granted": 101, "available": 31})]])
    (ledger,) = await until_quiet(look, 60, pause_s=0.001)
    assert not ledger.balanced
    assert len(calls) == 2


async def test_a_sale_that_never_becomes_quiet_is_shown_as_it_is():
    look, _ = looking([[busy()]])
    (ledger,) = await until_quiet(look, 0.01, pause_s=0.004)
    assert not ledger.quiet
    assert [row.ok for row in rows_of(ledger) if row.where == "both"] == [None]


@pytest.mark.parametrize(
    "sql", [{}, {"paid": 61}, {"available": -1, "moved": -1, "paid": 91, "buyers_units": 101}, {"duplicate_refunds": 1}]
)
def test_rows_and_judge_agree(sql):
    ledger = a_ledger(sql=sql)
    assert all(row.ok is not False for row in rows_of(ledger)) == ledger.balanced
