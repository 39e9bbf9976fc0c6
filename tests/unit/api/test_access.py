"""Who may do what: the whole table, route by role; and a buyer among other buyers."""

from __future__ import annotations

import httpx
import pytest

from service.api.auth import May
from service.api.routes import ROUTES
from service.core.keys import Role
from service.domain.ids import BuyerId, ReservationId, buyer_tag, reservation_id
from tests.unit.api.fakes import ANNA, ANNAS, BEN, JWT_SECRET, REPLAY, SALE, World, a_reservation, key, token

SALE_BODY = {"id": SALE, "sku": "S", "stock": 1, "price": 1, "currency": "EUR", "limit_per_buyer": 1}
BODIES: dict[str, object] = {
    "POST /v1/sales/{sale}/reservations": {"buyer_id": ANNA, "quantity": 1},
    "POST /v1/reservations/{reservation}/refund": {"reason": "broken", "restock": False},
    "POST /admin/v1/sales": SALE_BODY,
    "PATCH /admin/v1/sales/{sale}": {"price": 2},
    "POST /admin/v1/sales/{sale}/stock": {"adjustment_id": "a1", "delta": 5},
    "POST /admin/v1/replays": {"scope": {"source": "in_doubt"}, "dry_run": False, "why": "the API was down"},
}
STOREFRONT, PAYMENTS, PARTICIPANT, VIEWER, OPERATOR, BUYER = (
    "storefront",
    "payments",
    "participant",
    "viewer",
    "operator",
    "buyer",
)
TABLE: dict[str, set[str]] = {
    "POST /v1/sales/{sale}/reservations": {STOREFRONT, BUYER},
    "GET /v1/reservations/{reservation}": {STOREFRONT, PAYMENTS, PARTICIPANT, VIEWER, OPERATOR, BUYER},
    "POST /v1/reservations/{reservation}/cancel": {STOREFRONT, PARTICIPANT, OPERATOR, BUYER},
    "POST /v1/reservations/{reservation}/payment-started": {STOREFRONT, PAYMENTS, BUYER},
    "POST /v1/reservations/{reservation}/refund": {PARTICIPANT, OPERATOR},
    "POST /admin/v1/sales": {OPERATOR},
    "GET /admin/v1/sales": {VIEWER, OPERATOR},
    "GET /admin/v1/sales/{sale}": {VIEWER, OPERATOR},
    "PATCH /admin/v1/sales/{sale}": {OPERATOR},
    "POST /admin/v1/sales/{sale}/warm": {OPERATOR},
    "POST /admin/v1/sales/{sale}/open": {OPERATOR},
    "POST /admin/v1/sales/{sale}/close": {OPERATOR},
    "POST /admin/v1/sales/{sale}/settle": {OPERATOR},
    "POST /admin/v1/sales/{sale}/stock": {OPERATOR},
    "GET /admin/v1/sales/{sale}/ledger": {VIEWER, OPERATOR},
    "GET /admin/v1/in-doubt": {VIEWER, OPERATOR},
    "POST /admin/v1/replays": {OPERATOR},
    "GET /admin/v1/replays/{replay}": {VIEWER, OPERATOR},
    "GET /admin/v1/dead-letters": {VIEWER, OPERATOR},
}
"""Written a second time, on purpose: a change of service/api/routes.py alone fails here."""
UNGUARDED = {
    "POST /v1/payments": May.SIGNED,
    "GET /v1/sales/{sale}": May.ANYONE,
    "GET /healthz": May.ANYONE,
    "GET /readyz": May.ANYONE,
    "GET /metrics": May.ANYONE,
    "GET /openapi.json": May.ANYONE,
}


async def call(client: httpx.AsyncClient, route: str, headers: dict[str, str]) -> httpx.Response:
    method, _, path = route.partition(" ")
    path = path.format(sale=SALE, reservation=ANNAS, replay=REPLAY)
    return await client.request(method, path, json=BODIES.get(route), headers=headers)


def test_every_route_is_in_one_of_the_tables() -> None:
    assert {f"{route.method} {route.path}" for route in ROUTES} == TABLE.keys() | UNGUARDED.keys()
    assert {f"{route.method} {route.path}": {*route.may} for route in ROUTES} == {
        **TABLE,
        **{route: {may} for route, may in UNGUARDED.items()},
    }


def test_the_roles_of_the_table_are_the_roles_of_keys() -> None:
    assert {*May} - {May.BUYER, May.SIGNED, May.ANYONE} == {*Role}


@pytest.mark.parametrize("role", [*Role, BUYER])
@pytest.mark.parametrize("route", TABLE)
async def test_a_role_may_what_the_table_says(world: World, client: httpx.AsyncClient, route: str, role: str) -> None:
    answer = await call(client, route, token() if role == BUYER else key(role))
    if role in TABLE[route]:
        assert answer.is_success
        assert world.asked() != []
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert world.asked() == []


@pytest.mark.parametrize("route", TABLE)
async def test_without_a_key_nothing_is_to_be_had(world: World, client: httpx.AsyncClient, route: str) -> None:
    answer = await call(client, route, {})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert world.asked() == []


@pytest.mark.parametrize(
    "value",
    [
        "Bearer nobodys-key",
        "Bearer",
        "Bearer ",
        "key-operator",
        "Basic key-operator",
        "Bearer key-buyer",
        "Bearer a.b.c",
        "Bearer " + "k" * 5_000,
        "Bearer key-operator key-operator",
    ],
)
async def test_a_key_that_is_none_opens_nothing(world: World, client: httpx.AsyncClient, value: str) -> None:
    answer = await call(client, "GET /admin/v1/sales", {"Authorization": value})
    assert (answer.status_code, world.asked()) == (401, [])


async def test_the_scheme_is_written_as_one_likes(client: httpx.AsyncClient) -> None:
    assert (await call(client, "GET /admin/v1/sales", {"Authorization": "bearer key-viewer"})).status_code == 200


async def test_two_keys_at_once_are_none(world: World, client: httpx.AsyncClient) -> None:
    headers = [*key("viewer").items(), *key("operator").items()]
    answer = await client.get("/admin/v1/sales", headers=headers)
    assert (answer.status_code, world.asked()) == (400, [])


# --- a buyer among buyers ---------------------------------------------------------------------------------------------

TWIN = BuyerId("b1181122")
"""Another buyer with the same 20 bits of hash as Anna."""
OWN_CALLS = [
    "GET /v1/reservations/{reservation}",
    "POST /v1/reservations/{reservation}/cancel",
    "POST /v1/reservations/{reservation}/payment-started",
]


@pytest.mark.parametrize("route", OWN_CALLS)
async def test_another_buyers_reservation_does_not_exist(world: World, client: httpx.AsyncClient, route: str) -> None:
    answer = await call(client, route, token(BEN))
    assert (answer.status_code, answer.json()["code"]) == (404, "reservation_not_found")
    assert world.asked() == []


def test_the_twin_is_one() -> None:
    assert TWIN != ANNA
    assert buyer_tag(TWIN) == buyer_tag(ANNA)


@pytest.mark.parametrize("route", OWN_CALLS)
async def test_it_does_not_exist_either_where_the_hashes_are_alike(
    world: World, client: httpx.AsyncClient, route: str
) -> None:
    answer = await call(client, route, token(TWIN))
    assert (answer.status_code, answer.json()["code"]) == (404, "reservation_not_found")
    assert world.asked() == [("get", ANNAS)]


@pytest.mark.parametrize("route", OWN_CALLS)
async def test_anothers_and_an_unknown_id_are_answered_alike(client: httpx.AsyncClient, route: str) -> None:
    method, _, path = route.partition(" ")
    unknown = ReservationId("nothing.at-all")
    theirs = await client.request(method, path.format(reservation=ANNAS), headers=token(BEN))
    nobodys = await client.request(method, path.format(reservation=unknown), headers=token(BEN))
    drop = {"request_id"}
    assert {k: v for k, v in theirs.json().items() if k not in drop} == {
        k: v for k, v in nobodys.json().items() if k not in drop
    }


async def test_a_buyer_reserves_for_no_one_else(world: World, client: httpx.AsyncClient) -> None:
    answer = await call(client, "POST /v1/sales/{sale}/reservations", token(BEN))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert world.asked() == []


async def test_a_storefronts_key_acts_for_every_buyer(world: World, client: httpx.AsyncClient) -> None:
    bens = reservation_id(SALE, BEN, "k1")
    world.reservations.reservation = a_reservation(bens, BEN)
    answer = await client.get(f"/v1/reservations/{bens}", headers=key("storefront"))
    assert answer.json()["buyer_id"] == BEN


BAD_TOKENS = {
    "signed by another secret": token(secret="another secret of thirty-two bytes or so"),
    "signed by another algorithm": token(algorithm="HS512", secret=JWT_SECRET * 3),
    "not signed": {"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm5hIiwiZXhwIjo5OTk5OTk5OTk5fQ."},
    "over": token(exp=1_700_000_000),
    "not yet valid": token(nbf=9_000_000_000),
    "without an end": token(exp=None),
    "without a buyer": token(None),
    "of a buyer without a name": token(""),
    "of a buyer with a line break": token("an\nna"),
    "of a buyer of 129 bytes": token("a" * 129),
}


@pytest.mark.parametrize("case", BAD_TOKENS)
async def test_a_token_is_no_token_if_it_is(world: World, client: httpx.AsyncClient, case: str) -> None:
    answer = await client.get(f"/v1/reservations/{ANNAS}", headers=BAD_TOKENS[case])
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert world.asked() == []


@pytest.mark.parametrize(
    ("case", "hint"),
    [
        ("signed by another secret", "The token's signature does not hold. Send "),
        ("signed by another algorithm", "The token is no valid HS256 JWT. Send "),
        ("over", "The token has expired. Send "),
        ("not yet valid", "The token is not valid yet. Send "),
        ("without a buyer", "The token has no sub. Send "),
        ("of a buyer without a name", "The token's sub is no buyer's id. Send "),
    ],
)
async def test_a_refused_token_says_why(client: httpx.AsyncClient, case: str, hint: str) -> None:
    answer = await client.get(f"/v1/reservations/{ANNAS}", headers=BAD_TOKENS[case])
    assert answer.json()["detail"].startswith(hint)


async def test_a_key_that_is_not_known_or_did_not_come_is_said(client: httpx.AsyncClient) -> None:
    path = f"/v1/reservations/{ANNAS}"
    unknown = await client.get(path, headers={"Authorization": "Bearer dg_0_secret"})
    assert unknown.json()["detail"].startswith("The key is not known. ")
    assert (await client.get(path)).json()["detail"].startswith("No bearer key or token came. ")


async def test_a_buyer_called_operator_is_a_buyer(world: World, client: httpx.AsyncClient) -> None:
    answer = await client.get("/admin/v1/sales", headers=token("operator", role="operator"))
    assert (answer.status_code, world.asked()) == (403, [])


@pytest.mark.parametrize(
    ("audience", "admitted"),
    [("dropgate", True), (["shop", "dropgate"], True), ("shop", False), (None, False), ("", False), (7, False)],
)
async def test_where_tokens_are_meant_for_someone_it_must_be_us(world: World, audience: object, admitted: bool) -> None:
    world.jwt_audience = "dropgate"
    async with world.client() as client:
        answer = await client.get(f"/v1/reservations/{ANNAS}", headers=token(aud=audience))
    assert answer.status_code == (200 if admitted else 401)


async def test_without_an_audience_of_ours_it_is_not_looked_at(world: World, client: httpx.AsyncClient) -> None:
    assert (await client.get(f"/v1/reservations/{ANNAS}", headers=token(aud="shop"))).status_code == 200


async def test_without_a_secret_for_tokens_every_token_is_refused(world: World) -> None:
    world.jwt_secret = None
    async with world.client() as client:
        assert (await client.get(f"/v1/reservations/{ANNAS}", headers=token())).status_code == 401
