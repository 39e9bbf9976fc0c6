"""Hostile and mistaken bodies: refused before any use case hears of them, and told which field is wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from service.api.http import BODY_MAX
from tests.unit.api.fakes import SALE, World, key

PATH = f"/v1/sales/{SALE}/reservations"
GOOD = {"buyer_id": "anna", "quantity": 1}
HEADERS = {**key("storefront"), "Content-Type": "application/json"}


async def send(client: httpx.AsyncClient, body: bytes | AsyncIterator[bytes], **headers: str) -> httpx.Response:
    return await client.post(PATH, content=body, headers={**HEADERS, **headers})


async def refused(world: World, answer: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    assert (answer.status_code, answer.json()["code"], answer.json().get("param")) == (status, code, param)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert world.asked() == []


WRONG_FIELDS = {
    "a quantity of 0": ({"quantity": 0}, "quantity"),
    "a negative quantity": ({"quantity": -1}, "quantity"),
    "a quantity that is a float": ({"quantity": 1.0}, "quantity"),
    "a quantity that is a boolean": ({"quantity": True}, "quantity"),
    "a quantity that is a text": ({"quantity": "1"}, "quantity"),
    "a quantity that is null": ({"quantity": None}, "quantity"),
    "a quantity over every limit": ({"quantity": 10_001}, "quantity"),
    "a quantity of 40 digits": ({"quantity": 10**40}, "quantity"),
    "a buyer without a name": ({"buyer_id": ""}, "buyer_id"),
    "a buyer of 129 characters": ({"buyer_id": "a" * 129}, "buyer_id"),
    "a buyer of 130 bytes in 65 characters": ({"buyer_id": "ä" * 65}, "buyer_id"),
    "a buyer with a line break": ({"buyer_id": "an\nna"}, "buyer_id"),
    "a buyer with a NUL": ({"buyer_id": "an\0na"}, "buyer_id"),
    "a buyer written backwards": ({"buyer_id": "an\u202ena"}, "buyer_id"),
    "a buyer that is a number": ({"buyer_id": 7}, "buyer_id"),
    "a coupon of 65 characters": ({"coupon_code": "c" * 65}, "coupon_code"),
    "an empty coupon": ({"coupon_code": ""}, "coupon_code"),
    "21 metadata": ({"metadata": {str(n): "" for n in range(21)}}, "metadata"),
    "metadata with a key of 41": ({"metadata": {"k" * 41: ""}}, "metadata"),
    "metadata with an empty key": ({"metadata": {"": ""}}, "metadata"),
    "metadata with a value of 501": ({"metadata": {"k": "v" * 501}}, "metadata"),
    "metadata with a number": ({"metadata": {"k": 1}}, "metadata"),
    "metadata inside metadata": ({"metadata": {"k": {"k": "v"}}}, "metadata"),
    "metadata that is a list": ({"metadata": ["k"]}, "metadata"),
    "a field that nobody knows": ({"qantity": 1}, "qantity"),
}


@pytest.mark.parametrize("case", WRONG_FIELDS)
async def test_a_wrong_field_is_named(world: World, client: httpx.AsyncClient, case: str) -> None:
    change, param = WRONG_FIELDS[case]
    answer = await send(client, json.dumps({**GOOD, **change}).encode())  # type: ignore[dict-item]
    await refused(world, answer, 422, "invalid_request", param)
    assert answer.json()["detail"].startswith(f"{param}: ")


@pytest.mark.parametrize("field", GOOD)
async def test_a_missing_field_is_named(world: World, client: httpx.AsyncClient, field: str) -> None:
    body = {name: value for name, value in GOOD.items() if name != field}
    await refused(world, await send(client, json.dumps(body).encode()), 422, "invalid_request", field)


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"text"', b"[" * 16_000])
async def test_what_is_no_object_is_not_taken(world: World, client: httpx.AsyncClient, body: bytes) -> None:
    await refused(world, await send(client, body), 422, "invalid_request", "body")


MALFORMED = {
    "nothing": b"",
    "half an object": b'{"buyer_id":"anna"',
    "two objects": b'{"buyer_id":"anna","quantity":1}{}',
    "NaN": b'{"buyer_id":"anna","quantity":NaN}',
    "Infinity": b'{"buyer_id":"anna","quantity":Infinity}',
    "single quotes": b"{'buyer_id':'anna','quantity':1}",
    "bytes that are not UTF-8": b'{"buyer_id":"an\xffna","quantity":1}',
    "half a surrogate pair": b'{"buyer_id":"an\\ud800na","quantity":1}',
    "UTF-16": '{"buyer_id":"anna","quantity":1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + b'{"buyer_id":"anna","quantity":1}',
    "a raw line break in a text": b'{"buyer_id":"an\nna","quantity":1}',
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_not_json_is_not_taken(world: World, client: httpx.AsyncClient, case: str) -> None:
    await refused(world, await send(client, MALFORMED[case]), 400, "malformed_request")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"buyer_id":"anna","quantity":1,"quantity":2}', "quantity"),
        (b'{"buyer_id":"anna","quantity":1,"buyer_id":"anna"}', "buyer_id"),
        (b'{"buyer_id":"anna","quantity":1,"metadata":{"k":"1","\\u006b":"2"}}', "k"),
    ],
)
async def test_a_name_given_twice_means_nothing(
    world: World, client: httpx.AsyncClient, body: bytes, name: str
) -> None:
    await refused(world, await send(client, body), 400, "malformed_request", name)


@pytest.mark.parametrize(
    "body",
    [
        b'{"buyer_id":"anna","quantity":1,"x":' + b"[" * 8_000,
        b'{"buyer_id":"anna","quantity":1,"metadata":' + b'{"a":' * 3_000,
        b'{"buyer_id":' + b"[" * 8_000 + b"]" * 8_000 + b"}",
    ],
)
async def test_no_depth_of_nesting_breaks_anything(world: World, client: httpx.AsyncClient, body: bytes) -> None:
    assert (await send(client, body)).status_code == 422
    assert world.asked() == []


async def test_a_long_foreign_name_is_not_echoed_whole(client: httpx.AsyncClient) -> None:
    answer = await send(client, json.dumps({**GOOD, "x" * 15_000: 1}).encode())
    assert answer.status_code == 422
    assert len(answer.content) < 1_000


async def test_the_longest_of_everything_is_taken(world: World, client: httpx.AsyncClient) -> None:
    body = {
        "buyer_id": "ä" * 64,
        "quantity": 10_000,
        "coupon_code": "c" * 64,
        "metadata": {f"{n:040}": "v" * 500 for n in range(20)},
    }
    assert (await send(client, json.dumps(body, ensure_ascii=False).encode())).status_code == 202
    assert len(world.reserve.calls) == 1


async def test_null_is_the_same_as_leaving_out(world: World, client: httpx.AsyncClient) -> None:
    await send(client, json.dumps(GOOD).encode())
    await send(client, json.dumps({**GOOD, "coupon_code": None, "metadata": None}).encode())
    assert world.reserve.calls[0] == world.reserve.calls[1]


async def test_a_body_that_says_it_is_too_large_is_not_read(world: World, client: httpx.AsyncClient) -> None:
    answer = await send(client, b"x" * (17 * 1024))
    await refused(world, answer, 413, "body_too_large")
    assert answer.headers["Connection"] == "close"


async def chunks(total: int, served: list[int], size: int = 1024) -> AsyncIterator[bytes]:
    for _ in range(total // size):
        served.append(size)
        yield b" " * size


async def test_a_body_that_does_not_say_how_large_it_is_is_cut_off(world: World, client: httpx.AsyncClient) -> None:
    served: list[int] = []
    answer = await send(client, chunks(1024 * 1024, served))
    await refused(world, answer, 413, "body_too_large")
    assert sum(served) <= BODY_MAX + 2 * 1024


async def test_a_body_that_lies_about_its_length_is_cut_off_too(world: World, client: httpx.AsyncClient) -> None:
    answer = await send(client, chunks(64 * 1024, []), **{"Content-Length": "10"})
    await refused(world, answer, 413, "body_too_large")


@pytest.mark.parametrize("length", ["-1", "1e3", "many", "+5"])
async def test_a_length_that_is_no_number_is_refused(world: World, client: httpx.AsyncClient, length: str) -> None:
    answer = await send(client, chunks(1024, []), **{"Content-Length": length})
    await refused(world, answer, 400, "malformed_request", "Content-Length")


async def test_a_length_of_5000_digits_is_too_large(world: World, client: httpx.AsyncClient) -> None:
    answer = await send(client, chunks(1024, []), **{"Content-Length": "9" * 5_000})
    await refused(world, answer, 413, "body_too_large")


async def test_a_body_in_pieces_is_put_together(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in json.dumps(GOOD).encode():
            yield bytes([byte])

    assert (await send(client, pieces())).status_code == 202


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json; charset=latin-1", ""],
)
async def test_what_is_not_said_to_be_json_is_refused(world: World, client: httpx.AsyncClient, media_type: str) -> None:
    answer = await send(client, json.dumps(GOOD).encode(), **{"Content-Type": media_type})
    await refused(world, answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("media_type", ["APPLICATION/JSON", 'application/json; charset="UTF-8"', "application/json;"])
async def test_json_may_be_said_in_other_ways(client: httpx.AsyncClient, media_type: str) -> None:
    assert (await send(client, json.dumps(GOOD).encode(), **{"Content-Type": media_type})).status_code == 202


async def test_a_compressed_body_is_refused_and_not_unpacked(world: World, client: httpx.AsyncClient) -> None:
    answer = await send(client, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    await refused(world, answer, 415, "unsupported_media_type")
