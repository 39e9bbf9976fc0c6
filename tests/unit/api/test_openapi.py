"""/openapi.json: it says what is served, and every error has its words and its status."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from service.api.app import create_app
from service.api.openapi import refusals
from service.api.problems import WORDS, status_of
from service.api.routes import ROUTES
from service.api.routing import Route
from service.domain.errors import DropgateError, InDoubt, Permanent, Refused
from tests.unit.api.fakes import World


async def test_every_route_is_described_and_nothing_else(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    paths = answer.json()["paths"]
    described = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    app = create_app(World().services())
    served = {(route.method, route.path) for route in ROUTES}
    assert described == served
    assert {route.path for route in app.app.routes} == {path for _, path in served}  # type: ignore[attr-defined]
    assert (answer.status_code, answer.json()["openapi"]) == (200, "3.1.0")


async def test_every_reference_leads_somewhere(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    def references(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            yield from ([node["$ref"]] if "$ref" in node else [])
            for child in node.values():
                yield from references(child)
        elif isinstance(node, list):
            for child in node:
                yield from references(child)

    found = set(references(document))
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert found <= known
    assert known - found == set()


async def test_operations_have_names_of_their_own(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    names = [operation["operationId"] for operations in paths.values() for operation in operations.values()]
    assert len(set(names)) == len(names)


async def test_the_schemas_say_what_the_decoder_enforces(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    reserve = schemas["ReserveBody"]
    assert reserve["required"] == ["buyer_id", "quantity"]
    assert reserve["additionalProperties"] is False
    assert reserve["properties"]["quantity"] == {"type": "integer", "minimum": 1, "maximum": 10_000}
    assert schemas["ReservationView"]["properties"]["created_at"]["format"] == "date-time"


DESIGN = {
    "POST /v1/sales/{sale}/reservations": {
        "sold_out", "limit_reached", "sale_not_open", "sale_closed", "invalid_request", "idempotency_key_reused",
        "sale_not_found", "too_busy", "outcome_unknown", "unavailable",
    },
    "GET /v1/reservations/{reservation}": {"reservation_not_found", "outcome_unknown"},
    "POST /v1/reservations/{reservation}/cancel": {"already_paid", "already_final"},
    "POST /v1/reservations/{reservation}/payment-started": {"not_payable"},
    "POST /v1/reservations/{reservation}/refund": {"not_payable", "already_final"},
    "GET /admin/v1/in-doubt": {"sale_not_found", "invalid_request"},
    "POST /admin/v1/replays": {"sale_not_found", "invalid_request"},
    "GET /admin/v1/replays/{replay}": {"replay_not_found"},
}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_code_that_is_described_has_words_and_the_designs_are_all_there(route: Route) -> None:
    codes = {code for codes in refusals(route).values() for code in codes}
    assert codes <= WORDS.keys()
    assert DESIGN.get(f"{route.method} {route.path}", set()) <= codes


def all_of(kind: type[DropgateError]) -> Iterator[type[DropgateError]]:
    for child in kind.__subclasses__():
        yield child
        yield from all_of(child)


def test_every_refusal_and_every_doubt_has_a_status_and_the_rest_is_our_fault() -> None:
    errors = [*all_of(Refused), *all_of(InDoubt)]
    assert len(errors) > 15
    assert {
        error.__name__ for error in errors if not 400 <= status_of(error) <= 503 or status_of(error) == 500
    } == set()
    assert {status_of(error) for error in all_of(Permanent)} == {500}
