"""POST /v1/sales/{sale}/reservations: what a storefront is told, call by call of the design's table."""

from __future__ import annotations

import httpx
import pytest

from service.core.reserve import ReserveAnswer, ReserveRequest
from service.domain.errors import (
    BrokerUnavailable,
    Busy,
    Conflict,
    DropgateError,
    EpochChanged,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    StockUnavailable,
    StoreUnavailable,
    Unavailable,
)
from service.domain.reservation import Status
from tests.unit.api.fakes import ANNAS, NOW_MS, SALE, World, a_reservation, key

PATH = f"/v1/sales/{SALE}/reservations"
BODY = {"buyer_id": "anna", "quantity": 1}


async def post(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    return await client.post(PATH, json=BODY, headers={**key("storefront"), **headers})


async def test_a_new_reservation_is_accepted_and_says_where_it_is(client: httpx.AsyncClient) -> None:
    answer = await post(client)
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/reservations/{ANNAS}"
    assert "Idempotent-Replayed" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json() == {
        "id": ANNAS,
        "sale_id": SALE,
        "buyer_id": "anna",
        "quantity": 1,
        "status": "queued",
        "reason": None,
        "order_no": None,
        "amount": 4900,
        "currency": "EUR",
        "created_at": "2026-01-31T12:00:00.123Z",
        "expires_at": None,
        "expires_in_ms": None,
    }


async def test_the_same_again_is_the_same_reservation_and_says_so(world: World, client: httpx.AsyncClient) -> None:
    world.reserve.answer = ReserveAnswer(reservation=a_reservation(), replayed=True)
    answer = await post(client)
    assert (answer.status_code, answer.headers["Idempotent-Replayed"]) == (200, "true")
    assert answer.json()["id"] == ANNAS


async def test_the_time_left_is_counted_by_the_servers_clock(world: World, client: httpx.AsyncClient) -> None:
    waiting = a_reservation(status=Status.AWAITING_PAYMENT, expires_at_ms=NOW_MS + 61_000)
    world.reserve.answer = ReserveAnswer(reservation=waiting, replayed=True)
    assert (await post(client)).json()["expires_in_ms"] == 61_000
    world.clock.ms += 70_000
    assert (await post(client)).json()["expires_in_ms"] == 0


async def test_what_the_buyer_asked_for_reaches_the_use_case_unchanged(world: World, client: httpx.AsyncClient) -> None:
    body = {**BODY, "quantity": 2, "coupon_code": "SPRING", "metadata": {"cart": "7"}}
    await client.post(PATH, json=body, headers={**key("storefront"), "Idempotency-Key": "order 7/1"})
    expected = ReserveRequest(
        sale_id=SALE,
        buyer_id=a_reservation().buyer_id,
        quantity=2,
        key="order 7/1",
        coupon_code="SPRING",
        metadata={"cart": "7"},
    )
    assert world.reserve.calls == [(expected,)]


REFUSALS = [
    (Conflict("sold_out", sale_id=SALE, final=False), 409, "sold_out"),
    (Conflict("limit_reached", reservation_id=ANNAS, final=True), 409, "limit_reached"),
    (Conflict("sale_not_open", sale_id=SALE, final=False), 409, "sale_not_open"),
    (Conflict("sale_closed", sale_id=SALE, final=True), 409, "sale_closed"),
    (InvalidRequest("quantity", "more than the limit"), 422, "invalid_request"),
    (IdempotencyKeyReused(ANNAS), 422, "idempotency_key_reused"),
    (NotFound("sale", SALE), 404, "sale_not_found"),
    (Busy(3), 429, "too_busy"),
    (OutcomeUnknown(ANNAS), 503, "outcome_unknown"),
    (Unavailable("stock", "rebuilt"), 503, "unavailable"),
    (StockUnavailable("redis", "10.0.0.9 timed out"), 503, "unavailable"),
    (StoreUnavailable("sql"), 503, "outcome_unknown"),
    (BrokerUnavailable("broker"), 503, "unavailable"),
    (EpochChanged(SALE, 1, 2), 503, "unavailable"),
]


@pytest.mark.parametrize(("error", "status", "code"), REFUSALS, ids=lambda it: getattr(it, "code", None))
async def test_each_refusal_has_its_status_and_its_code(
    world: World, client: httpx.AsyncClient, error: DropgateError, status: int, code: str
) -> None:
    world.reserve.error = error
    answer = await post(client)
    assert (answer.status_code, answer.json()["code"], answer.json()["status"]) == (status, code, status)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["title"]
    assert answer.json()["detail"]
    assert answer.json()["request_id"] == answer.headers["Dropgate-Request-Id"]
    assert ("Retry-After" in answer.headers) == (status in {429, 503})


async def test_a_conflict_says_whether_it_is_final_and_about_which_reservation(
    world: World, client: httpx.AsyncClient
) -> None:
    world.reserve.error = Conflict("limit_reached", reservation_id=ANNAS, final=False)
    problem = (await post(client)).json()
    assert (problem["reservation_id"], problem["final"]) == (ANNAS, False)


async def test_an_unknown_outcome_names_the_reservation_to_ask_for(world: World, client: httpx.AsyncClient) -> None:
    world.reserve.error = OutcomeUnknown(ANNAS)
    assert (await post(client)).json()["reservation_id"] == ANNAS


async def test_what_is_wrong_inside_is_not_told_outside(world: World, client: httpx.AsyncClient) -> None:
    world.reserve.error = StockUnavailable("redis", "10.0.0.9 timed out")
    assert "10.0.0.9" not in (await post(client)).text


async def test_being_busy_says_when_to_come_again(world: World, client: httpx.AsyncClient) -> None:
    world.reserve.error = Busy(3)
    assert (await post(client)).headers["Retry-After"] == "3"


@pytest.mark.parametrize("sale", ["UPPER", "-first", "a" * 49, "a.b", "a%20b", "caf%C3%A9"])
async def test_what_cannot_be_a_sales_id_is_no_sale_and_asks_nobody(
    world: World, client: httpx.AsyncClient, sale: str
) -> None:
    answer = await client.post(f"/v1/sales/{sale}/reservations", json=BODY, headers=key("storefront"))
    assert (answer.status_code, answer.json()["code"]) == (404, "sale_not_found")
    assert world.asked() == []


@pytest.mark.parametrize("value", [" ", "k" * 256, "caf\xe9", "a\tb", "a\x7f"])
async def test_an_idempotency_key_is_printable_ascii_of_255_at_most(
    world: World, client: httpx.AsyncClient, value: str
) -> None:
    headers = [*key("storefront").items(), ("Idempotency-Key", value.encode("latin-1"))]
    answer = await client.post(PATH, json=BODY, headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"], answer.json()["param"]) == (
        422,
        "invalid_request",
        "Idempotency-Key",
    )
    assert world.asked() == []


async def test_an_idempotency_key_of_255_characters_is_taken(world: World, client: httpx.AsyncClient) -> None:
    assert (await post(client, **{"Idempotency-Key": "k" * 255})).status_code == 202


async def test_two_idempotency_keys_are_none(world: World, client: httpx.AsyncClient) -> None:
    headers = [*key("storefront").items(), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = await client.post(PATH, json=BODY, headers=headers)
    assert (answer.status_code, answer.json()["param"]) == (400, "idempotency-key")
    assert world.asked() == []


async def test_an_error_that_nobody_foresaw_tells_nothing_but_its_request(
    world: World, client: httpx.AsyncClient
) -> None:
    world.reserve.error = ZeroDivisionError("password=hunter2")
    answer = await post(client)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert answer.json()["request_id"] == answer.headers["Dropgate-Request-Id"]
    assert "hunter2" not in answer.text
