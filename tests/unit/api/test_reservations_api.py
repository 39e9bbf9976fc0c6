"""Reading, cancelling, paying and refunding a reservation, and the sale as buyers see it."""

from __future__ import annotations

import httpx
import pytest

from service.core.sales import StockLevel
from service.domain.errors import Conflict, DropgateError, NotFound, OutcomeUnknown, StoreUnavailable
from service.domain.ids import OrderNo
from service.domain.reservation import Reason, Status
from tests.unit.api.fakes import ANNAS, NOW_MS, SALE, World, a_reservation, a_sale, key, some_rules, token

PATH = f"/v1/reservations/{ANNAS}"


async def test_a_reservation_is_shown_with_all_that_the_stores_know(world: World, client: httpx.AsyncClient) -> None:
    world.reservations.reservation = a_reservation(
        status=Status.AWAITING_PAYMENT, order_no=OrderNo("DG-ABC"), expires_at_ms=NOW_MS + 900_000
    )
    shown = (await client.get(PATH, headers=token())).json()
    assert (shown["status"], shown["order_no"]) == ("awaiting_payment", "DG-ABC")
    assert (shown["expires_at"], shown["expires_in_ms"]) == ("2026-01-31T12:15:00.123Z", 900_000)


async def test_how_a_reservation_ended_is_said(world: World, client: httpx.AsyncClient) -> None:
    world.reservations.reservation = a_reservation(status=Status.REJECTED, reason=Reason.NOT_CONFIRMED)
    shown = (await client.get(PATH, headers=key("viewer"))).json()
    assert (shown["status"], shown["reason"]) == ("rejected", "not_confirmed")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("reservation", ANNAS), 404, "reservation_not_found"),
        (OutcomeUnknown(ANNAS), 503, "outcome_unknown"),
        (StoreUnavailable("sql"), 503, "outcome_unknown"),
    ],
)
async def test_in_doubt_is_neither_known_nor_unknown(
    world: World, client: httpx.AsyncClient, error: DropgateError, status: int, code: str
) -> None:
    world.reservations.error = error
    answer = await client.get(PATH, headers=key("storefront"))
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "id_",
    [
        "x",
        "drop-1.short",
        "drop-1." + "a" * 29,
        ANNAS.upper(),
        ANNAS + "%0A",
        "Drop.aaaabbbbbbbbbbbbbbbbbbbbbbbb",
        "%00",
    ],
)
async def test_what_cannot_be_an_id_asks_nobody(world: World, client: httpx.AsyncClient, id_: str) -> None:
    answer = await client.get(f"/v1/reservations/{id_}", headers=key("storefront"))
    assert (answer.status_code, answer.json()["code"]) == (404, "reservation_not_found")
    assert world.asked() == []


@pytest.mark.parametrize(
    ("role", "said", "reason"),
    [
        ("storefront", None, Reason.BUYER_CANCELLED),
        ("storefront", "buyer_cancelled", Reason.BUYER_CANCELLED),
        ("participant", None, Reason.PARTICIPANT_CANCELLED),
        ("participant", "fulfilment_failed", Reason.FULFILMENT_FAILED),
        ("operator", None, Reason.OPERATOR_CANCELLED),
        ("operator", "buyer_cancelled", Reason.BUYER_CANCELLED),
    ],
)
async def test_who_cancels_says_why(
    world: World, client: httpx.AsyncClient, role: str, said: str | None, reason: Reason
) -> None:
    body = {} if said is None else {"reason": said}
    answer = await client.post(f"{PATH}/cancel", json=body, headers=key(role))
    assert answer.status_code == 200
    assert world.endings.calls == [("cancel", ANNAS, reason)]


async def test_a_cancellation_needs_no_body(world: World, client: httpx.AsyncClient) -> None:
    assert (await client.post(f"{PATH}/cancel", headers=key("storefront"))).status_code == 200
    assert world.endings.calls == [("cancel", ANNAS, Reason.BUYER_CANCELLED)]


async def test_a_buyer_cancels_an_own_reservation_once_it_is_certain_whose_it_is(
    world: World, client: httpx.AsyncClient
) -> None:
    assert (await client.post(f"{PATH}/cancel", headers=token())).status_code == 200
    assert world.asked() == [("get", ANNAS), ("cancel", ANNAS, Reason.BUYER_CANCELLED)]


@pytest.mark.parametrize(
    ("role", "said"),
    [("storefront", "operator_cancelled"), ("participant", "buyer_cancelled"), ("operator", "payment_timeout")],
)
async def test_nobody_speaks_for_another(world: World, client: httpx.AsyncClient, role: str, said: str) -> None:
    answer = await client.post(f"{PATH}/cancel", json={"reason": said}, headers=key(role))
    assert (answer.status_code, answer.json()["param"]) == (422, "reason")
    assert world.asked() == []


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("cancel", "already_paid"),
        ("cancel", "already_final"),
        ("payment-started", "not_payable"),
        ("refund", "not_payable"),
        ("refund", "already_final"),
    ],
)
async def test_what_the_state_forbids_is_a_conflict_with_its_code(
    world: World, client: httpx.AsyncClient, call: str, code: str
) -> None:
    world.endings.error = Conflict(code, reservation_id=ANNAS)
    role, body = ("participant", {"reason": "broken", "restock": True}) if call == "refund" else ("storefront", {})
    answer = await client.post(f"{PATH}/{call}", json=body, headers=key(role))
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert answer.json()["reservation_id"] == ANNAS
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("restock", [True, False])
async def test_a_refund_says_whether_the_unit_returns_and_who_asked(
    world: World, client: httpx.AsyncClient, restock: bool
) -> None:
    body = {"reason": "lost in the post", "restock": restock}
    assert (await client.post(f"{PATH}/refund", json=body, headers=key("operator"))).status_code == 200
    assert world.endings.calls == [("refund", ANNAS, restock, "lost in the post", "operator-1")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"reason": "broken"}, "restock"),
        ({"restock": True}, "reason"),
        ({"reason": "", "restock": True}, "reason"),
        ({"reason": "r" * 201, "restock": True}, "reason"),
        ({"reason": "broken", "restock": "yes"}, "restock"),
        ({"reason": "broken", "restock": 1}, "restock"),
    ],
)
async def test_a_refund_leaves_nothing_to_be_guessed(
    world: World, client: httpx.AsyncClient, body: dict[str, object], param: str
) -> None:
    answer = await client.post(f"{PATH}/refund", json=body, headers=key("operator"))
    assert (answer.status_code, answer.json()["param"], world.asked()) == (422, param, [])


async def test_a_started_payment_is_passed_on(world: World, client: httpx.AsyncClient) -> None:
    assert (await client.post(f"{PATH}/payment-started", headers=key("payments"))).status_code == 200
    assert world.endings.calls == [("start_payment", ANNAS)]


async def test_a_sale_is_shown_to_everybody_for_a_second(world: World, client: httpx.AsyncClient) -> None:
    rules = some_rules(opens_at_ms=NOW_MS, closes_at_ms=NOW_MS + 60_000)
    world.sales.sale, world.sales.stock_level = a_sale(rules=rules), StockLevel.LOW
    answer = await client.get(f"/v1/sales/{SALE}")
    assert answer.headers["Cache-Control"] == "max-age=1"
    assert answer.headers.get_list("Cache-Control") == ["max-age=1"]
    assert "ETag" not in answer.headers
    assert answer.json() == {
        "id": SALE,
        "status": "open",
        "stock_level": "low",
        "opens_at": "2026-01-31T12:00:00.123Z",
        "closes_at": "2026-01-31T12:01:00.123Z",
        "server_time": "2026-01-31T12:00:00.123Z",
        "limit_per_buyer": 2,
        "price": 4900,
        "currency": "EUR",
    }


async def test_a_sale_that_is_not_there_is_not_remembered_by_caches(world: World, client: httpx.AsyncClient) -> None:
    world.sales.error = NotFound("sale", SALE)
    answer = await client.get(f"/v1/sales/{SALE}")
    assert (answer.status_code, answer.json()["code"]) == (404, "sale_not_found")
    assert answer.headers["Cache-Control"] == "no-store"
