"""HTTP itself: paths, methods, HEAD, request ids, clients that go away, metrics, readiness and /openapi.json."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
import structlog
from prometheus_client import REGISTRY
from starlette.types import Message, Scope

from service.api.app import create_app
from service.core.reserve import ReserveAnswer, ReserveRequest
from service.domain.errors import Conflict, NotFound
from tests.unit.api.fakes import SALE, World, a_reservation, key

RESERVE = f"/v1/sales/{SALE}/reservations"
BODY = {"buyer_id": "anna", "quantity": 1}


@pytest.mark.parametrize("path", ["/", "/v1", "/v2/sales/x", "/healthz/", "/v1//sales", "/admin", "/docs", "/%00"])
async def test_an_unknown_path_is_a_problem_too(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Dropgate-Request-Id"] == answer.json()["request_id"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", RESERVE, "POST"),
        ("OPTIONS", RESERVE, "POST"),
        ("DELETE", "/healthz", "GET, HEAD"),
        ("PUT", "/admin/v1/sales", "GET, HEAD, POST"),
        ("POST", f"/admin/v1/sales/{SALE}", "GET, HEAD, PATCH"),
        ("HEAD", "/v1/payments", "POST"),
        ("BREW", "/healthz", "GET, HEAD"),
    ],
)
async def test_another_method_is_told_which_there_are(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_head_has_the_headers_of_get_and_no_body(client: httpx.AsyncClient) -> None:
    got, head = await client.get(f"/v1/sales/{SALE}"), await client.head(f"/v1/sales/{SALE}")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Length", "Content-Type", "Cache-Control"):
        assert head.headers[name] == got.headers[name]


async def test_no_other_sites_page_may_read(client: httpx.AsyncClient) -> None:
    answer = await client.get("/healthz", headers={"Origin": "https://elsewhere.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


async def test_every_request_has_an_id_of_its_own_and_of_ours(client: httpx.AsyncClient) -> None:
    answers = [await client.get("/healthz", headers={"Dropgate-Request-Id": "theirs"}) for _ in range(20)]
    ids = {answer.headers["Dropgate-Request-Id"] for answer in answers}
    assert len(ids) == 20
    assert "theirs" not in ids


async def test_an_unforeseen_error_is_logged_with_its_request(world: World, client: httpx.AsyncClient) -> None:
    world.reserve.error = ZeroDivisionError("oops")
    with structlog.testing.capture_logs() as lines:
        answer = await client.post(RESERVE, json=BODY, headers=key("storefront"))
    (line,) = lines
    assert (line["log_level"], line["request_id"]) == ("error", answer.headers["Dropgate-Request-Id"])
    assert "ZeroDivisionError: oops" in line["traceback"]


async def test_a_refusal_is_not_worth_a_line(world: World, client: httpx.AsyncClient) -> None:
    world.reserve.error = Conflict("sold_out", sale_id=SALE, final=True)
    with structlog.testing.capture_logs() as lines:
        await client.post(RESERVE, json=BODY, headers=key("storefront"))
        await client.post(RESERVE, content=b"{", headers=key("storefront"))
    assert lines == []


# --- clients that go away ---------------------------------------------------------------------------------------------


def reserve_scope() -> Scope:
    headers = {**key("storefront"), "content-type": "application/json"}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "POST",
        "path": RESERVE,
        "raw_path": RESERVE.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }


async def run(world: World, messages: Iterator[Message]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    await create_app(world.services())(reserve_scope(), receive, send)
    return sent


async def test_a_client_that_goes_away_halfway_has_asked_for_nothing(world: World) -> None:
    messages: Iterator[Message] = iter(
        [
            {"type": "http.request", "body": b'{"buyer_id":"anna",', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    assert await run(world, messages) == []
    assert world.asked() == []


async def test_a_client_that_goes_away_afterwards_does_not_stop_what_has_begun(world: World) -> None:
    began, finish = asyncio.Event(), asyncio.Event()
    finished = False

    class Slow:
        async def reserve(self, request: ReserveRequest, /) -> ReserveAnswer:
            nonlocal finished
            began.set()
            await finish.wait()
            finished = True
            return ReserveAnswer(reservation=a_reservation(), replayed=False)

    world.reserve = Slow()  # type: ignore[assignment]
    messages: Iterator[Message] = iter(
        [
            {"type": "http.request", "body": b'{"buyer_id":"anna","quantity":1}'},
            {"type": "http.disconnect"},
        ]
    )
    serving = asyncio.create_task(run(world, messages))
    await began.wait()
    finish.set()
    start, _ = await serving
    assert (finished, start["status"]) == (True, 202)


async def test_a_websocket_is_shown_the_door(world: World) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1", "headers": [], "query_string": b"", "root_path": ""}
    await create_app(world.services())(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]


# --- what machines ask ------------------------------------------------------------------------------------------------


async def test_health_asks_nothing_of_anybody(world: World, client: httpx.AsyncClient) -> None:
    world.readiness.lacks = ("everything",)
    world.fail(RuntimeError())
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json(), world.asked()) == (200, {"status": "ok"}, [])


async def test_ready_says_so(client: httpx.AsyncClient) -> None:
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "missing": [], "advice": []})


async def test_an_advice_leaves_it_ready(world: World, client: httpx.AsyncClient) -> None:
    world.readiness.advice = ("Redis may not be asked: look for yourself",)
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["advice"]) == (200, list(world.readiness.advice))


async def test_not_ready_names_what_is_missing(world: World, client: httpx.AsyncClient) -> None:
    world.readiness.lacks = ("the topic dropgate-order: run `dropgate topics create`", "Redis does not answer")
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.json()["missing"] == list(world.readiness.lacks)
    assert answer.headers["Retry-After"]


def counted(sale: str, code: str) -> float:
    labels = {"sale": sale, "code": code}
    return REGISTRY.get_sample_value("dropgate_reserve_answers_total", labels) or 0.0


async def test_each_answer_to_a_reserve_request_is_counted_once(world: World, client: httpx.AsyncClient) -> None:
    before = {code: counted(SALE, code) for code in ("accepted", "replayed", "sold_out")}
    timed = REGISTRY.get_sample_value("dropgate_reserve_seconds_count") or 0.0
    await client.post(RESERVE, json=BODY, headers=key("storefront"))
    world.reserve.answer = ReserveAnswer(reservation=a_reservation(), replayed=True)
    await client.post(RESERVE, json=BODY, headers=key("storefront"))
    world.reserve.error = Conflict("sold_out", sale_id=SALE, final=False)
    await client.post(RESERVE, json=BODY, headers=key("storefront"))
    assert {code: counted(SALE, code) - n for code, n in before.items()} == dict.fromkeys(before, 1.0)
    assert (REGISTRY.get_sample_value("dropgate_reserve_seconds_count") or 0.0) - timed == 3


async def test_invented_sales_make_no_metrics(world: World, client: httpx.AsyncClient) -> None:
    before = counted("", "sale_not_found")
    world.reserve.error = NotFound("sale", "invented-7")
    await client.post("/v1/sales/invented-7/reservations", json=BODY, headers=key("storefront"))
    await client.post("/v1/sales/invented-8/reservations", json=BODY)
    await client.post("/v1/sales/invented-9/reservations", content=b"", headers=key("storefront"))
    exposed = (await client.get("/metrics")).text
    assert "invented" not in exposed
    assert counted("", "sale_not_found") == before + 1


async def test_metrics_are_exposed_as_prometheus_reads_them(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert "# TYPE dropgate_reserve_seconds histogram" in answer.text
