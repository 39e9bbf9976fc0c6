"""What a consumer and its child say to each other, byte by byte."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.rocketmq.classic import frames
from service.adapters.rocketmq.classic.frames import (
    FRAME_BYTES_MAX,
    Begin,
    Begun,
    BrokenFrame,
    Failed,
    Message,
    Ping,
    Settled,
    ToChild,
    ToParent,
)

BEGIN = Begin(
    name_servers="127.0.0.1:9876",
    topic="orders",
    group="readers",
    instance="i",
    threads=64,
    cached_max=1000,
    silence_max_s=15.0,
    access_key="key",
    secret_key="secret",
)
MESSAGE = Message(
    number=1,
    topic="orders",
    message_id="id",
    key="key",
    body=b"\x00body\xff",
    reconsumed=2,
    born_at_ms=1_800_000_000_000,
    queue_id=7,
    queue_offset=41,
    offset=4242,
    properties={"name": "value"},
)


async def read(data: bytes) -> ToParent:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    return await frames.read(stream)


def receive(data: bytes) -> ToChild | None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        return frames.receive(theirs)


@pytest.mark.parametrize("frame", [Begun(), Failed("no library"), Ping(), MESSAGE])
async def test_what_a_child_says_arrives(frame: ToParent) -> None:
    assert await read(frames.encode(frame)) == frame


@pytest.mark.parametrize("frame", [BEGIN, Settled(7), Ping()])
def test_what_a_child_is_told_arrives(frame: ToChild) -> None:
    assert receive(frames.encode(frame)) == frame


def test_a_child_is_told_of_its_parents_end_by_nothing() -> None:
    assert receive(b"") is None
    assert receive(frames.encode(Settled(7))[:-1]) is None


@pytest.mark.parametrize("frame", [Settled(7), BEGIN])
async def test_a_frame_for_the_child_is_none_for_the_parent(frame: ToChild) -> None:
    with pytest.raises(BrokenFrame):
        await read(frames.encode(frame))


async def test_a_frame_that_is_too_large_is_not_waited_for() -> None:
    head = struct.pack(">I", FRAME_BYTES_MAX + 1)
    with pytest.raises(BrokenFrame):
        await read(head)
    with pytest.raises(BrokenFrame):
        receive(head)


@given(st.binary(max_size=200))
async def test_no_bytes_are_more_than_broken(data: bytes) -> None:
    framed = struct.pack(">I", len(data)) + data
    with suppress(BrokenFrame):
        await read(framed)
    with suppress(BrokenFrame):
        receive(framed)
