"""Bytes of the remoting protocol, made by hand."""

from __future__ import annotations

import asyncio
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.rocketmq.remoting import frames
from service.adapters.rocketmq.remoting.client import host_and_port
from service.adapters.rocketmq.remoting.frames import FRAME_BYTES_MAX, Frame, MalformedFrame, Request
from service.adapters.rocketmq.remoting.signing import Credentials, signed
from service.domain.errors import BrokerRefused


def frame_of(header: bytes, body: bytes = b"", *, kind: int = 0) -> bytes:
    """Without its length."""
    return struct.pack(">I", kind << 24 | len(header)) + header + body


async def read(data: bytes) -> Frame:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    return await frames.read(stream)


def test_a_request_is_length_header_length_header_and_body() -> None:
    data = frames.encode(Request(code=105, fields={"topic": "t"}, body=b"xyz"), 9)
    length, marked = struct.unpack(">II", data[:8])
    assert (length, marked >> 24) == (len(data) - 4, 0)
    header = json.loads(data[8 : 8 + marked])
    assert {**header, "language": ""} == {
        "code": 105,
        "opaque": 9,
        "flag": 0,
        "language": "",
        "version": 0,
        "extFields": {"topic": "t"},
        "serializeTypeCurrentRPC": "JSON",
    }
    assert data[8 + marked :] == b"xyz"


def test_a_request_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(MalformedFrame, match="too large"):
        frames.encode(Request(code=17, body=bytes(FRAME_BYTES_MAX)), 1)


async def test_an_answer_is_read_with_what_follows_left_alone() -> None:
    header = (
        '{"code":17,"flag":1,"opaque":7,"remark":"kein ä","extFields":{"offset":"3","gone":null},"new":{}}'.encode()
    )
    body = b"body!"
    data = struct.pack(">I", 4 + len(header) + len(body)) + frame_of(header, body)
    assert await read(data + b"the next one") == Frame(
        code=17, opaque=7, is_answer=True, remark="kein ä", fields={"offset": "3"}, body=body
    )


async def test_a_servers_own_question_is_told_from_an_answer() -> None:
    header = b'{"code":40,"flag":2,"opaque":1}'
    assert not frames.decode(frame_of(header)).is_answer


@pytest.mark.parametrize(
    "length", [-1, 0, 3, FRAME_BYTES_MAX + 1, 2**31 - 1], ids=["negative", "none", "tiny", "over", "huge"]
)
async def test_a_length_out_of_bounds_is_refused_before_anything_is_read(length: int) -> None:
    with pytest.raises(MalformedFrame, match="is announced"):
        await read(struct.pack(">i", length))


@pytest.mark.parametrize(
    "data",
    [
        frame_of(b"{}"),
        frame_of(b"[]"),
        frame_of(b""),
        frame_of(b'{"code":1'),
        frame_of(b'{"code":"1","opaque":1}'),
        frame_of(b'{"code":1,"opaque":1,"extFields":{"a":1}}'),
        frame_of(b'{"code":1,"opaque":1,"remark":"\xff"}'),
        frame_of(b'{"code":1,"opaque":1}', kind=1),
        frame_of(b'{"code":1,"opaque":1}')[:-3],
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        frames.decode(data)


@given(st.binary(min_size=4, max_size=200))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    try:
        frame = frames.decode(data)
    except MalformedFrame:
        return
    assert isinstance(frame.code, int)


@given(st.integers(0, 2**31 - 1), st.dictionaries(st.text(), st.text()), st.binary(max_size=100))
def test_what_is_written_is_read(opaque: int, fields: dict[str, str], body: bytes) -> None:
    data = frames.encode(Request(code=14, fields=fields, body=body), opaque)
    assert frames.decode(data[4:]) == Frame(
        code=14, opaque=opaque, is_answer=False, remark="", fields=fields, body=body
    )


def test_a_signature_is_over_the_fields_in_order_of_their_names_and_the_body() -> None:
    """As openssl makes it: HMAC-SHA1 of "keyabc" + "1" + "t" + "body", the values of AccessKey, queueId and topic."""
    request = Request(code=30, fields={"topic": "t", "queueId": "1"}, body=b"body")
    fields = signed(request, Credentials(access_key="keyabc", secret_key="secret")).fields
    assert fields == {"topic": "t", "queueId": "1", "AccessKey": "keyabc", "Signature": "uwDe2mZBaYb6yaRKB93DLrvlSME="}


def test_a_secret_is_in_no_log() -> None:
    assert "hidden" not in repr(Credentials(access_key="k", secret_key="hidden"))


@pytest.mark.parametrize(
    ("address", "found"),
    [("broker:10911", ("broker", 10911)), ("[::1]:1", ("::1", 1)), ("10.0.0.1:9876", ("10.0.0.1", 9876))],
)
def test_an_address_is_host_and_port(address: str, found: tuple[str, int]) -> None:
    assert host_and_port(address) == found


@pytest.mark.parametrize("address", ["", "broker", ":1", "broker:", "broker:0", "broker:65536", "broker:x", "broker:٣"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BrokerRefused, match="host:port"):
        host_and_port(address)
