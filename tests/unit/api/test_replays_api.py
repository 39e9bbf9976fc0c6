"""What got stuck and its replay over HTTP: a dry run unless told otherwise, and nothing without a reason."""

from __future__ import annotations

import httpx
import pytest

from service.domain.errors import BrokerUnavailable, InvalidRequest, NotFound
from service.domain.replay import BATCHES_MAX, ReplayId, Scope, Source
from tests.unit.api.fakes import ANNAS, REPLAY, SALE, World, key

REPLAYS = "/admin/v1/replays"
ACT = {"scope": {"source": "in_doubt"}, "dry_run": False, "why": "the API was down"}


async def post(client: httpx.AsyncClient, body: object) -> httpx.Response:
    return await client.post(REPLAYS, json=body, headers=key("operator"))


async def test_a_replay_is_a_dry_run_unless_told_otherwise(world: World, client: httpx.AsyncClient) -> None:
    answer = await post(client, {"scope": {"source": "discarded"}})
    assert (answer.status_code, "Location" in answer.headers) == (200, False)
    shown = answer.json()
    assert (shown["id"], shown["dry_run"], shown["finished_at"]) == (None, True, None)
    assert world.replays.calls == [("look", Scope(source=Source.DISCARDED), "operator-1")]


async def test_an_act_is_stored_under_an_id_and_says_what_became_of_each_item(
    world: World, client: httpx.AsyncClient
) -> None:
    scope = {
        "source": "dead_letter",
        "sale": SALE,
        "reservation_ids": [ANNAS, "whatever", ANNAS],
        "batch_ids": ["b1", "b1"],
        "older_than_s": 60,
    }
    answer = await post(client, {**ACT, "scope": scope})
    assert (answer.status_code, answer.headers["Location"]) == (201, f"{REPLAYS}/{REPLAY}")
    (called,) = world.replays.calls
    assert called == (
        "act",
        Scope(
            source=Source.DEAD_LETTER,
            sale_id=SALE,
            reservation_ids=(ANNAS, "whatever"),  # type: ignore[arg-type]
            batch_ids=("b1",),  # type: ignore[arg-type]
            older_than_s=60,
        ),
        "the API was down",
        "operator-1",
    )
    shown = answer.json()
    assert shown["scope"] == {**scope, "reservation_ids": [ANNAS, "whatever"], "batch_ids": ["b1"]}
    assert (shown["outcomes"], shown["more"], shown["why"]) == ({"ordered": 1}, False, "the API was down")
    (item,) = shown["items"]
    assert (item["outcome"], item["batch_id"], item["message_id"], item["age_s"]) == ("ordered", "batch-1", None, 61)
    assert [(it["status"], it["reason"]) for it in item["reservations"]] == [
        ("awaiting_payment", None),
        ("nothing", None),
    ]


@pytest.mark.parametrize("why", [None, "", "  ", "a\nb", "a\x1b[2Jb", "w" * 201, 7])
async def test_nothing_is_done_without_a_reason_that_can_be_read(
    world: World, client: httpx.AsyncClient, why: object
) -> None:
    answer = await post(client, {**ACT, "why": why})
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, "why", [])


WRONG: dict[str, tuple[object, str]] = {
    "no source": ({}, "scope"),
    "another source": ({"source": "everything"}, "scope.source"),
    "a sale that is none": ({"source": "in_doubt", "sale": "No Sale"}, "scope.sale"),
    "a sale with a line break": ({"source": "in_doubt", "sale": "a\n"}, "scope.sale"),
    "a negative age": ({"source": "in_doubt", "older_than_s": -1}, "scope.older_than_s"),
    "an age of 40 digits": ({"source": "in_doubt", "older_than_s": 10**40}, "scope.older_than_s"),
    "ids that are one text": ({"source": "in_doubt", "reservation_ids": "abc"}, "scope.reservation_ids"),
    "an empty id": ({"source": "in_doubt", "reservation_ids": [""]}, "scope.reservation_ids"),
    "an id of 97": ({"source": "in_doubt", "batch_ids": ["a" * 97]}, "scope.batch_ids"),
    "an id with a NUL": ({"source": "in_doubt", "batch_ids": ["a\0"]}, "scope.batch_ids"),
    "too many ids": ({"source": "in_doubt", "batch_ids": ["a"] * (BATCHES_MAX + 1)}, "scope.batch_ids"),
    "a field that nobody knows": ({"source": "in_doubt", "all": True}, "scope"),
    "a list": ([], "scope"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_scope_that_says_nothing_clear_is_refused(world: World, client: httpx.AsyncClient, case: str) -> None:
    scope, param = WRONG[case]
    answer = await post(client, {"scope": scope})
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, param, [])


async def test_half_a_character_is_no_id(world: World, client: httpx.AsyncClient) -> None:
    body = rb'{"scope": {"source": "in_doubt", "batch_ids": ["\udc80"]}}'
    headers = {**key("operator"), "Content-Type": "application/json"}
    answer = await client.post(REPLAYS, content=body, headers=headers)
    assert (400 <= answer.status_code < 500, world.asked()) == (True, [])


@pytest.mark.parametrize("body", [{}, {"scope": None}, {**ACT, "dry_run": "false"}, {**ACT, "dry_run": None}])
async def test_a_body_without_a_scope_or_with_a_doubtful_switch_does_nothing(
    world: World, client: httpx.AsyncClient, body: object
) -> None:
    answer = await post(client, body)
    assert (answer.status_code, world.asked()) == (422, [])


async def test_a_scope_that_cannot_be_looked_up_says_what_to_add(world: World, client: httpx.AsyncClient) -> None:
    world.replays.error = InvalidRequest("scope.sale", "name the sale of the batches")
    answer = await post(client, {"scope": {"source": "in_doubt", "batch_ids": ["b"]}})
    assert (answer.status_code, answer.json()["param"]) == (422, "scope.sale")


async def test_a_replay_that_acted_is_read_again(world: World, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{REPLAYS}/{REPLAY}", headers=key("viewer"))
    assert (answer.status_code, answer.json()["id"], answer.json()["dry_run"]) == (200, REPLAY, False)
    assert world.replays.calls == [("get", REPLAY)]
    world.fail(NotFound("replay", ReplayId("rp-x")))
    unknown = await client.get(f"{REPLAYS}/rp-x", headers=key("viewer"))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "replay_not_found")


async def test_what_is_in_doubt_is_listed_with_the_brokers_numbers(world: World, client: httpx.AsyncClient) -> None:
    everything = await client.get("/admin/v1/in-doubt", headers=key("viewer"))
    shown = everything.json()
    assert (shown["halves"], shown["discarded"], shown["more"], len(shown["items"])) == (7, None, False, 1)
    of_sale = await client.get(f"/admin/v1/in-doubt?sale={SALE}", headers=key("viewer"))
    assert (everything.status_code, of_sale.status_code) == (200, 200)
    looks = [call for call in world.replays.calls if call[0] == "look"]
    assert looks == [
        ("look", Scope(source=Source.IN_DOUBT), "viewer-1"),
        ("look", Scope(source=Source.IN_DOUBT, sale_id=SALE), "viewer-1"),
    ]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("sale=No%20Sale", "sale"),
        ("sale=", "sale"),
        ("sale=a&sale=b", "sale"),
        ("sales=a", "query"),
        ("sale=%ff", "query"),
        ("sale", "query"),
        ("sale=" + "a" * 3_000, "query"),
        ("&".join(["x=1"] * 40), "query"),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(
    world: World, client: httpx.AsyncClient, query: str, param: str
) -> None:
    answer = await client.get(f"/admin/v1/in-doubt?{query}", headers=key("viewer"))
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, param, [])


async def test_dead_letters_are_listed_without_their_bodies(client: httpx.AsyncClient) -> None:
    answer = await client.get("/admin/v1/dead-letters", headers=key("viewer"))
    (letter,) = answer.json()["dead_letters"]
    assert letter == {
        "group": "dropgate-order-creator",
        "topic": "dropgate-order",
        "message_id": "m-1",
        "key": "batch-1",
        "attempts": 3,
        "bytes": 21,
        "why": "it cannot be read",
        "born_at": "2026-01-31T11:59:59.123Z",
        "dead_at": "2026-01-31T12:00:00.123Z",
    }
    assert "anna" not in answer.text


async def test_a_broker_that_is_away_is_no_empty_list(world: World, client: httpx.AsyncClient) -> None:
    world.broker.error = BrokerUnavailable("broker", "no answer")
    answer = await client.get("/admin/v1/dead-letters", headers=key("viewer"))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")


async def test_the_query_is_described(client: httpx.AsyncClient) -> None:
    operation = (await client.get("/openapi.json")).json()["paths"]["/admin/v1/in-doubt"]["get"]
    assert [(it["name"], it["in"]) for it in operation["parameters"]] == [("sale", "query")]
    assert "404" in operation["responses"]
