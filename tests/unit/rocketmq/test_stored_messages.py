"""Stored messages, byte by byte."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.rocketmq.remoting.frames import FRAME_BYTES_MAX, MalformedFrame
from service.adapters.rocketmq.remoting.messages import (
    MAGIC,
    MAGIC_LONG_TOPIC,
    decode,
    decode_all,
    parse_physical_id,
    physical_id,
)

V4 = bytes((10, 0, 0, 7)) + struct.pack(">i", 10911)
V6 = bytes(15) + b"\x01" + struct.pack(">i", 10911)
ZLIB_FLAG, LZ4_FLAG, HOSTS_V6 = 0x1, 0x101, 0x30


def stored(
    body: bytes = b"hello",
    topic: bytes = b"orders",
    properties: bytes = b"KEYS\x01k-1\x02mine\x01a=b\x02",
    *,
    flags: int = 0,
    magic: int = MAGIC,
    crc: int | None = None,
) -> bytes:
    """One message as a broker keeps it."""
    host = V6 if flags & HOSTS_V6 else V4
    head = struct.pack(">IIiiqqi", magic, _crc(body) if crc is None else crc, 3, 0, 41, 4242, flags)
    times = struct.pack(">q", 1_800_000_000_000) + host + struct.pack(">q", 1_800_000_000_001) + host
    length = struct.pack(">H", len(topic)) if magic == MAGIC_LONG_TOPIC else bytes((len(topic),))
    rest = (
        struct.pack(">iqi", 2, 0, len(body)) + body + length + topic + struct.pack(">H", len(properties)) + properties
    )
    return struct.pack(">i", 4 + len(head + times + rest)) + head + times + rest


def _crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def test_every_field_of_a_message_is_read() -> None:
    message = decode(stored())
    assert (message.topic, message.queue_id, message.queue_offset, message.offset) == ("orders", 3, 41, 4242)
    assert (message.born_at_ms, message.stored_at_ms) == (1_800_000_000_000, 1_800_000_000_001)
    assert (message.reconsumed, message.store_host) == (2, "10.0.0.7:10911")
    assert (message.body, message.damage) == (b"hello", None)
    assert message.properties == {"KEYS": "k-1", "mine": "a=b"}
    assert message.physical_id == "0A00000700002A9F0000000000001092"


@pytest.mark.parametrize(("properties", "key"), [(b"KEYS\x01k-1 k-2\x02", "k-1"), (b"KEYS\x01\x02", ""), (b"", "")])
def test_the_first_of_its_keys_is_the_key(properties: bytes, key: str) -> None:
    assert decode(stored(properties=properties)).key == key


def test_hosts_may_be_of_ip_6() -> None:
    message = decode(stored(flags=HOSTS_V6))
    assert message.store_host == "[::1]:10911"
    assert parse_physical_id(message.physical_id) == ("[::1]:10911", 4242)


def test_a_topic_may_be_longer_than_a_byte_says() -> None:
    topic = b"t" * 300
    assert decode(stored(topic=topic, magic=MAGIC_LONG_TOPIC)).topic == topic.decode()


def test_an_empty_body_and_no_properties_are_fine() -> None:
    message = decode(stored(b"", properties=b""))
    assert (message.body, message.properties) == (b"", {})


def test_properties_hold_any_text_but_their_separators() -> None:
    raw = "a\x01\x02b\x01ä\x02broken\x02".encode()
    assert decode(stored(properties=raw)).properties == {"a": "", "b": "ä"}


@pytest.mark.parametrize("flags", [ZLIB_FLAG, ZLIB_FLAG | 0x300], ids=["before 5.0", "from 5.0 on"])
def test_a_body_compressed_by_zlib_is_inflated(flags: int) -> None:
    assert decode(stored(zlib.compress(b"again " * 99), flags=flags)).body == b"again " * 99


@pytest.mark.parametrize(
    ("message", "damage"),
    [
        (stored(crc=1), "checksum"),
        (stored(b"no zlib", flags=ZLIB_FLAG), "cannot be inflated"),
        (stored(zlib.compress(b"x" * 500)[:-9], flags=ZLIB_FLAG), "ends early"),
        (stored(zlib.compress(bytes(FRAME_BYTES_MAX + 1)), flags=ZLIB_FLAG), "too large"),
        (stored(b"x", flags=LZ4_FLAG), "LZ4"),
    ],
)
def test_a_damaged_body_hides_neither_its_message_nor_the_next(message: bytes, damage: str) -> None:
    first, second = decode_all(message + stored(b"sound"))
    assert first.body == b""
    assert first.damage is not None
    assert damage in first.damage
    assert (first.properties["KEYS"], second.body) == ("k-1", b"sound")


def test_a_checksum_of_0_is_none() -> None:
    assert decode(stored(crc=0)).damage is None


@pytest.mark.parametrize("cut", [0, 3, 4, 40, 80, 95, -1])
def test_a_message_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(MalformedFrame):
        decode(stored()[:cut])
    with pytest.raises(MalformedFrame):
        decode_all(stored() + (stored()[:cut] or b"x"))


@pytest.mark.parametrize(
    "data",
    [
        stored(magic=0xCBD43194),  # the blank end of a file
        stored() + b"x",
        stored(topic=b"\xff\xfe"),
        stored(properties=b"\xff\x01\xff\x02"),
        struct.pack(">i", -1) + stored()[4:],
        struct.pack(">i", 0),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    for decoding in (decode, decode_all):
        try:
            decoding(data)
        except MalformedFrame:
            continue


@given(st.integers(0, len(stored()) - 1), st.integers(0, 255))
def test_one_wrong_byte_is_another_message_or_refused(at: int, byte: int) -> None:
    data = bytearray(stored())
    data[at] = byte
    try:
        decode_all(bytes(data))
    except MalformedFrame:
        return


@given(st.ip_addresses(), st.integers(0, 65_535), st.integers(0, 2**63 - 1))
def test_a_physical_id_is_a_host_and_an_offset(host: object, port: int, offset: int) -> None:
    name = f"[{host}]" if ":" in str(host) else str(host)
    assert parse_physical_id(physical_id(f"{name}:{port}", offset)) == (f"{name}:{port}", offset)


@pytest.mark.parametrize(
    "id_",
    ["", "0A", "G" * 32, "é" * 32, " " * 32, "7F0000010000" + "F" * 20, "0A0000070001FFFF" + "0" * 15 + "1x"],
)
def test_what_is_no_physical_id_is_refused(id_: str) -> None:
    with pytest.raises(ValueError, match="no physical message id"):
        parse_physical_id(id_)
