"""What an operator may ask of sales, and how a sale's rules are checked before anything is made of them."""

from __future__ import annotations

import httpx
import pytest

from service.domain.errors import Conflict, NotFound
from service.domain.sale import Authority, OnRedisLoss, SaleStatus, ServerIds
from tests.unit.api.fakes import SALE, World, a_sale, key, some_rules

SALES = "/admin/v1/sales"
PATH = f"{SALES}/{SALE}"
BODY = {"id": SALE, "sku": "SHOE-42", "stock": 100, "price": 4900, "currency": "EUR", "limit_per_buyer": 2}


async def create(client: httpx.AsyncClient, **changes: object) -> httpx.Response:
    body = {name: value for name, value in {**BODY, **changes}.items() if value is not ...}
    return await client.post(SALES, json=body, headers=key("operator"))


async def test_a_sale_is_made_with_the_services_windows_where_it_names_none(
    world: World, client: httpx.AsyncClient
) -> None:
    answer = await create(client)
    assert (answer.status_code, answer.headers["Location"]) == (201, PATH)
    assert world.sales.calls == [("create", SALE, some_rules(), "operator-1")]


async def test_a_sale_is_made_with_the_rules_it_names(world: World, client: httpx.AsyncClient) -> None:
    await create(
        client,
        opens_at="2026-01-31T13:00:00+01:00",
        closes_at="2026-01-31T12:00:00.5Z",
        payment_window_s=60,
        queue_deadline_s=30,
        on_redis_loss="sql",
        authority="sql",
        segments=1,
    )
    rules = some_rules(
        opens_at_ms=1_769_860_800_000,
        closes_at_ms=1_769_860_800_500,
        payment_window_s=60,
        queue_deadline_s=30,
        on_redis_loss=OnRedisLoss.SQL,
        wanted_authority=Authority.SQL,
    )
    assert world.sales.calls == [("create", SALE, rules, "operator-1")]


WRONG = {
    "an id in capitals": ({"id": "DROP"}, "id"),
    "an id with a dot": ({"id": "a.b"}, "id"),
    "an id with a line break": ({"id": "drop\n"}, "id"),
    "an id of 49": ({"id": "a" * 49}, "id"),
    "no id": ({"id": ...}, "id"),
    "an empty sku": ({"sku": ""}, "sku"),
    "a sku with a tab": ({"sku": "a\tb"}, "sku"),
    "a negative stock": ({"stock": -1}, "stock"),
    "a stock over 10^9": ({"stock": 1_000_000_001}, "stock"),
    "a price in fractions": ({"price": 49.5}, "price"),
    "a negative price": ({"price": -1}, "price"),
    "a currency in small letters": ({"currency": "eur"}, "currency"),
    "a currency with a line break": ({"currency": "EU\n"}, "currency"),
    "no limit": ({"limit_per_buyer": ...}, "limit_per_buyer"),
    "a limit of 0": ({"limit_per_buyer": 0}, "limit_per_buyer"),
    "a time without a zone": ({"opens_at": "2026-01-31T12:00:00"}, "opens_at"),
    "a time in seconds": ({"opens_at": 1_769_860_800}, "opens_at"),
    "a time before 1970": ({"opens_at": "1969-12-31T23:59:59Z"}, "opens_at"),
    "a time that is none": ({"closes_at": "2026-02-30T12:00:00Z"}, "closes_at"),
    "a close before the open": (
        {"opens_at": "2026-01-31T12:00:00Z", "closes_at": "2026-01-31T12:00:00+01:00"},
        "closes_at",
    ),
    "a close at the open": ({"opens_at": "2026-01-31T12:00:00Z", "closes_at": "2026-01-31T12:00:00Z"}, "closes_at"),
    "a window of 0": ({"payment_window_s": 0}, "payment_window_s"),
    "a window over a day": ({"queue_deadline_s": 86_401}, "queue_deadline_s"),
    "another loss policy": ({"on_redis_loss": "pray"}, "on_redis_loss"),
    "the authority on the way": ({"authority": "loading"}, "authority"),
    "two segments": ({"segments": 2}, "segments"),
    "a status": ({"status": "open"}, "status"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_sale_with_a_wrong_rule_is_not_made(world: World, client: httpx.AsyncClient, case: str) -> None:
    changes, param = WRONG[case]
    answer = await create(client, **changes)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, param, [])


async def test_an_id_that_has_other_rules_is_taken(world: World, client: httpx.AsyncClient) -> None:
    world.sales.error = Conflict("sale_exists", sale_id=SALE)
    answer = await create(client)
    assert (answer.status_code, answer.json()["code"]) == (409, "sale_exists")


async def test_a_sale_is_shown_as_it_stands(world: World, client: httpx.AsyncClient) -> None:
    world.sales.sale = a_sale(lost=ServerIds(run_id="r", replid="p"), lost_at_ms=5)
    shown = (await client.get(PATH, headers=key("viewer"))).json()
    assert (shown["authority"], shown["wanted_authority"], shown["epoch"], shown["lost"]) == ("redis", "redis", 3, True)
    assert (shown["initial"], shown["adjusted"], shown["available"]) == (100, 0, 60)
    listed = (await client.get(SALES, headers=key("viewer"))).json()
    assert listed == {"sales": [shown]}


@pytest.mark.parametrize(
    ("act", "call"),
    [
        ("warm", ("warm", SALE, "operator-1")),
        ("open", ("open", SALE, False, "operator-1")),
        ("close", ("close", SALE, "operator-1")),
        ("settle", ("settle", SALE, "operator-1")),
    ],
)
async def test_an_act_needs_no_body(
    world: World, client: httpx.AsyncClient, act: str, call: tuple[object, ...]
) -> None:
    assert (await client.post(f"{PATH}/{act}", headers=key("operator"))).status_code == 200
    assert (await client.post(f"{PATH}/{act}", json={}, headers=key("operator"))).status_code == 200
    assert world.sales.calls == [call, call]


@pytest.mark.parametrize("act", ["warm", "open"])
async def test_what_the_keeper_has_not_loaded_is_not_called_done(
    world: World, client: httpx.AsyncClient, act: str
) -> None:
    world.sales.sale = a_sale(authority=Authority.SQL)
    assert (await client.post(f"{PATH}/{act}", headers=key("operator"))).status_code == 202


async def test_opening_may_warm_as_well(world: World, client: httpx.AsyncClient) -> None:
    await client.post(f"{PATH}/open", json={"warm": True}, headers=key("operator"))
    assert world.sales.calls == [("open", SALE, True, "operator-1")]


@pytest.mark.parametrize(("act", "body"), [("close", {"force": True}), ("open", {"warm": "yes"})])
async def test_an_act_takes_nothing_that_it_does_not_know(
    world: World, client: httpx.AsyncClient, act: str, body: object
) -> None:
    answer = await client.post(f"{PATH}/{act}", json=body, headers=key("operator"))
    assert (answer.status_code, world.asked()) == (422, [])


@pytest.mark.parametrize(
    "code", [*(f"sale_is_{status}" for status in SaleStatus), "sale_changed_meanwhile", "sale_not_warm", "a_new_one"]
)
async def test_what_a_sales_status_forbids_is_said_in_words(world: World, client: httpx.AsyncClient, code: str) -> None:
    world.sales.error = Conflict(code, sale_id=SALE)
    answer = await client.post(f"{PATH}/open", headers=key("operator"))
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert answer.json()["detail"]


async def test_rules_change_by_their_names_and_null_takes_a_time_away(world: World, client: httpx.AsyncClient) -> None:
    body = {"limit_per_buyer": 3, "opens_at": None, "closes_at": "2026-01-31T12:00:00Z", "on_redis_loss": "sql"}
    assert (await client.patch(PATH, json=body, headers=key("operator"))).status_code == 200
    changes = {
        "limit_per_buyer": 3,
        "opens_at_ms": None,
        "closes_at_ms": 1_769_860_800_000,
        "on_redis_loss": OnRedisLoss.SQL,
    }
    assert world.sales.calls == [("change_rules", SALE, changes, "operator-1")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "body"),
        ({"stock": 5}, "stock"),
        ({"segments": 1}, "segments"),
        ({"authority": "sql"}, "authority"),
        ({"price": None}, "price"),
        ({"limit_per_buyer": 0}, "limit_per_buyer"),
        ({"currency": "eur"}, "currency"),
        ({"opens_at": "2026-01-31T12:00:00Z", "closes_at": "2026-01-31T11:00:00Z"}, "closes_at"),
    ],
)
async def test_what_does_not_change_by_a_patch_is_refused(
    world: World, client: httpx.AsyncClient, body: object, param: str
) -> None:
    answer = await client.patch(PATH, json=body, headers=key("operator"))
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, param, [])


@pytest.mark.parametrize("delta", [-1_000_000_000, -1, 1, 1_000_000_000])
async def test_stock_is_adjusted_under_an_id(world: World, client: httpx.AsyncClient, delta: int) -> None:
    body = {"adjustment_id": "delivery 7", "delta": delta}
    assert (await client.post(f"{PATH}/stock", json=body, headers=key("operator"))).status_code == 200
    assert world.sales.calls == [("adjust", SALE, "delivery 7", delta, "operator-1")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"adjustment_id": "a", "delta": 0}, "delta"),
        ({"adjustment_id": "a", "delta": 1_000_000_001}, "delta"),
        ({"adjustment_id": "a", "delta": -1_000_000_001}, "delta"),
        ({"adjustment_id": "a", "delta": 1.5}, "delta"),
        ({"adjustment_id": "", "delta": 1}, "adjustment_id"),
        ({"adjustment_id": "a" * 65, "delta": 1}, "adjustment_id"),
        ({"adjustment_id": "a\n", "delta": 1}, "adjustment_id"),
        ({"delta": 1}, "adjustment_id"),
    ],
)
async def test_an_adjustment_that_says_nothing_clear_is_refused(
    world: World, client: httpx.AsyncClient, body: object, param: str
) -> None:
    answer = await client.post(f"{PATH}/stock", json=body, headers=key("operator"))
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, param, [])


async def test_the_ledger_shows_every_term_of_both_stores(client: httpx.AsyncClient) -> None:
    ledger = (await client.get(f"{PATH}/ledger", headers=key("viewer"))).json()
    assert (ledger["sql"]["initial"], ledger["sql"]["available"], ledger["sql"]["paid"]) == (100, 60, 40)
    read, lost = ledger["segments"]
    assert (read["segment"], read["readable"], read["granted"], read["available"]) == (0, True, 100, 60)
    assert (lost["segment"], lost["readable"], lost["granted"]) == (1, False, None)
    assert ledger["balanced"] is False
    assert ledger["problems"] == ["I1: segment 1 cannot be read"]


async def test_a_sale_that_nobody_knows_is_not_found(world: World, client: httpx.AsyncClient) -> None:
    world.fail(NotFound("sale", SALE))
    for path in (PATH, f"{PATH}/ledger"):
        answer = await client.get(path, headers=key("viewer"))
        assert (answer.status_code, answer.json()["code"]) == (404, "sale_not_found")
