"""`dropgate replay`: what it looks for, that it only looks unless told otherwise, what it says next, how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from service.domain.errors import NotFound
from service.domain.ids import BatchId, BuyerId, ReservationId, SaleId, reservation_id
from service.domain.replay import Absence, Item, Now, Outcome, Replay, ReplayId, Scope, Source
from service.domain.reservation import Reason, Status
from tests.unit.cli.replays import NOW_MS

ANNA = reservation_id(SaleId("drop"), BuyerId("anna"), "k")
ACT = ("replay", "--source", "in_doubt", "--apply", "--why", "the API was down")
LOOK = ("replay", "--source", "in_doubt")


def an_item(outcome: Outcome = Outcome.PLANNED, **changes: object) -> Item:
    item = Item(
        outcome=outcome,
        why="2 reservations hold stock and no order.",
        batch_id=BatchId("zs4hxtmu2jveiy7caimy"),
        sale_id=SaleId("drop"),
        epoch=2,
        born_at_ms=NOW_MS - 200_000,
        reservations=(
            Now(reservation_id=ANNA, standing=Status.REJECTED, reason=Reason.SOLD_OUT),
            Now(reservation_id=ReservationId("drop.b"), standing=Absence.NOTHING),
        ),
    )
    return replace(item, **changes)  # type: ignore[arg-type]


def test_it_only_looks_unless_told_otherwise_and_says_how_to_act(dropgate, bootstrap, monkeypatch):
    monkeypatch.setattr("service.cli.replay_view._now_ms", lambda: NOW_MS)
    bootstrap.replays.items = [an_item()]
    result = dropgate(*LOOK)
    assert result.exit_code == 1, "there is something to do"
    (call,) = bootstrap.replays.calls
    assert call[:2] == ("look", Scope(source=Source.IN_DOUBT))
    for shown in ("planned", "zs4hxtmu2jveiy7caimy", "drop", "3 m", "1 nothing, 1 rejected", "hold stock"):
        assert shown in result.stdout
    assert 'Nothing was changed. To do it, run it again with --apply --why "…".' in result.stdout


def test_acting_takes_a_reason_and_names_who(dropgate, bootstrap):
    bootstrap.replays.items = [an_item(Outcome.ORDERED)]
    result = dropgate(*ACT)
    assert result.exit_code == 0
    ((act, scope, why, actor),) = bootstrap.replays.calls
    assert (act, scope, why) == ("act", Scope(source=Source.IN_DOUBT), "the API was down")
    assert actor.startswith("cli")
    assert "Done. Stored as rp-1." in result.stdout


def test_its_scope_is_what_the_options_say(dropgate, bootstrap):
    dropgate(
        *("replay", "--source", "discarded", "--sale", "drop", "--older-than", "15m"),
        *("--reservation", ANNA, "--reservation", "nonsense", "--reservation", ANNA, "--batch", "b1"),
    )
    scope = bootstrap.replays.calls[0][1]
    assert scope == Scope(
        source=Source.DISCARDED,
        sale_id=SaleId("drop"),
        reservation_ids=(ANNA, ReservationId("nonsense")),
        batch_ids=(BatchId("b1"),),
        older_than_s=900,
    )


@pytest.mark.parametrize(("age", "seconds"), [("0", 0), ("90", 90), ("60s", 60), ("2h", 7_200), ("1d", 86_400)])
def test_ages_are_written_as_people_do(dropgate, bootstrap, age, seconds):
    dropgate(*LOOK, "--older-than", age)
    assert bootstrap.replays.calls[0][1].older_than_s == seconds


MISUSES = {
    "no source": ("replay",),
    "another source": ("replay", "--source", "everything"),
    "a sale that is none": (*LOOK, "--sale", "No Sale"),
    "an age that is none": (*LOOK, "--older-than", "5y"),
    "an age of over a year": (*LOOK, "--older-than", "367d"),
    "a batch in doubt without its sale": (*LOOK, "--batch", "b1"),
    "an empty id": (*LOOK, "--reservation", ""),
    "an id with a control character": (*LOOK, "--reservation", "a\x1b[2J"),
    "an id of 97": (*LOOK, "--reservation", "a" * 97),
    "too many ids": (*LOOK, *(arg for n in range(65) for arg in ("--reservation", f"a{n}"))),
    "acting without a reason": (*LOOK, "--apply"),
    "acting with an empty reason": (*LOOK, "--apply", "--why", " "),
    "a reason of two lines": (*LOOK, "--apply", "--why", "a\nb"),
    "a reason for nothing": (*LOOK, "--why", "because"),
    "showing and looking": ("replay", "--show", "rp-1", "--source", "in_doubt"),
    "showing and acting": ("replay", "--show", "rp-1", "--apply"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse_does_nothing_and_ends_with_2(dropgate, bootstrap, case):
    result = dropgate(*MISUSES[case])
    assert (result.exit_code, bootstrap.replays.calls) == (2, [])
    assert result.stderr != ""


@pytest.mark.parametrize(
    ("outcome", "looked", "acted"),
    [
        (Outcome.PLANNED, 1, 1),
        (Outcome.PENDING, 0, 0),
        (Outcome.WAITING, 1, 1),
        (Outcome.ORDERED, 0, 0),
        (Outcome.RELEASED, 0, 0),
        (Outcome.NO_OP, 0, 0),
        (Outcome.REFUSED, 1, 1),
    ],
)
def test_it_ends_with_1_if_something_is_left_for_a_person(dropgate, bootstrap, outcome, looked, acted):
    bootstrap.replays.items = [an_item(Outcome.ORDERED), an_item(outcome)]
    assert dropgate(*LOOK).exit_code == looked
    assert dropgate(*ACT).exit_code == acted


def test_what_the_broker_has_accepted_is_not_called_done(dropgate, bootstrap):
    bootstrap.replays.items = [an_item(Outcome.PENDING)]
    shown = dropgate(*ACT).stdout
    assert "dropgate replay --show rp-1" in shown
    assert "Done" not in shown


def test_a_replay_that_acted_is_shown_again(dropgate, bootstrap):
    bootstrap.replays.items = [an_item(Outcome.RELEASED)]
    result = dropgate("replay", "--show", "rp-1")
    assert (result.exit_code, bootstrap.replays.calls) == (0, [("get", "rp-1")])
    assert "released" in result.stdout
    bootstrap.replays.error = NotFound("replay", "rp-9")
    unknown = dropgate("replay", "--show", "rp-9")
    assert (unknown.exit_code, unknown.stderr) == (1, "dropgate: There is no replay rp-9.\n")


def test_more_and_a_cut_short_replay_say_to_run_it_again(dropgate, bootstrap):
    bootstrap.replays.items = [an_item(Outcome.ORDERED), an_item()]
    bootstrap.replays.more = True
    bootstrap.replays.finished = False
    result = dropgate(*ACT)
    assert result.exit_code == 1
    assert "It ended midway: run it again, that does no harm." in result.stdout
    assert "There is more than this" in result.stdout


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("in_doubt", "No decided batch without orders is there."),
        ("discarded", "No discarded half message is there."),
        ("dead_letter", "No dead letter of the order group is there."),
    ],
)
def test_nothing_is_said_in_one_sentence(dropgate, source, sentence):
    result = dropgate("replay", "--source", source)
    assert (result.exit_code, result.stdout) == (0, f"{sentence}\n")


def test_json_has_the_names_of_the_api(dropgate, bootstrap):
    bootstrap.replays.items = [an_item(Outcome.ORDERED, message_id="m-1")]
    shown = json.loads(dropgate(*ACT, "--json").stdout)
    assert (shown["id"], shown["dry_run"], shown["why"], shown["outcomes"]) == (
        "rp-1",
        False,
        "the API was down",
        {"ordered": 1},
    )
    (item,) = shown["items"]
    assert (item["message_id"], item["sale_id"]) == ("m-1", "drop")
    assert item["reservations"] == [
        {"id": ANNA, "status": "rejected", "reason": "sold_out"},
        {"id": "drop.b", "status": "nothing", "reason": None},
    ]


def test_names_of_json_are_those_of_http() -> None:
    from service.api.replay_views import ReplayItemView, ReplayScopeView, ReplayView, StandingView
    from service.cli.replay_view import replay_json

    replay = Replay(
        id=ReplayId("rp-1"),
        scope=Scope(source=Source.IN_DOUBT),
        why=None,
        actor="anna",
        created_at_ms=NOW_MS,
        more=False,
        items=(an_item(),),
    )
    shown: dict[str, Any] = replay_json(replay)
    (item,) = shown["items"]
    assert tuple(shown) == ReplayView.__struct_fields__
    assert tuple(shown["scope"]) == ReplayScopeView.__struct_fields__
    assert tuple(item) == ReplayItemView.__struct_fields__
    assert tuple(item["reservations"][0]) == StandingView.__struct_fields__


def test_what_a_message_says_is_shown_as_it_is(dropgate, bootstrap):
    bootstrap.replays.items = [an_item(Outcome.REFUSED, why="It cannot be read: [/red] [bold]x[/bold] at $.a[0].")]
    assert "[/red] [bold]x[/bold]" in dropgate(*LOOK, columns="300").stdout
