"""Stored messages out of bytes, as the broker keeps them in its commit log and hands them out."""

from __future__ import annotations

import ipaddress
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.adapters.rocketmq.remoting.frames import FRAME_BYTES_MAX, MalformedFrame

MAGIC, MAGIC_LONG_TOPIC = 0xDAA320A7, 0xDAA320AB
COMPRESSED, BORN_HOST_V6, STORE_HOST_V6 = 0x1, 0x10, 0x20
COMPRESSION_SHIFT, COMPRESSION_MASK = 8, 0x7
ZLIB = frozenset({0, 3})
"""0 is what releases before 5.0 wrote."""
COMPRESSIONS = {1: "LZ4", 2: "ZSTD"}
NAME_END, PROPERTY_END = "\x01", "\x02"
REAL_TOPIC, KEYS, KEY_END = "REAL_TOPIC", "KEYS", " "
CHECK_TIMES, UNIQUE_ID = "TRANSACTION_CHECK_TIMES", "UNIQ_KEY"
PHYSICAL_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
"""An IPv4 or IPv6 address, a port, an offset."""

_FIXED = struct.Struct(">iIIiiqqiq")
_LONG, _INT, _SHORT = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">H")
_PLACE = struct.Struct(">iq")


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """`offset` is its place in the broker's commit log, `queue_offset` the one in its queue.

    `damage` says why the body is empty, where it could not be read: one bad message must not hide its neighbours."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    store_host: str
    born_at_ms: int
    stored_at_ms: int
    reconsumed: int
    properties: Mapping[str, str]
    body: bytes
    damage: str | None = None

    @property
    def physical_id(self) -> str:
        return physical_id(self.store_host, self.offset)

    @property
    def real_topic(self) -> str:
        """Where it was sent to, if it lies in a topic of the broker's own for its half messages or timers; else
        empty."""
        return self.properties.get(REAL_TOPIC, "")

    @property
    def key(self) -> str:
        """The first; empty where there is none."""
        return self.properties.get(KEYS, "").split(KEY_END)[0]


class _Damaged(Exception):
    """The frame is whole, its body is not readable."""


class _Cursor:
    """Takes pieces off a frame. Past its end: MalformedFrame."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise MalformedFrame(f"a stored message ends early: {length} bytes wanted at {self._at}")
        self._at += length
        return bytes(self._data[self._at - length : self._at])

    def number(self, kind: struct.Struct) -> int:
        return int(kind.unpack(self.take(kind.size))[0])

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)


def decode_all(data: bytes) -> Sequence[StoredMessage]:
    """Messages one after the other, as an answer to a pull carries them."""
    found, cursor = [], _Cursor(data)
    while not cursor.at_end:
        head = cursor.take(_INT.size)
        (size,) = _INT.unpack(head)
        found.append(decode(head + cursor.take(size - _INT.size)))
    return found


def decode(data: bytes) -> StoredMessage:
    """One message; MalformedFrame also when bytes are left."""
    cursor = _Cursor(data)
    size, magic, crc, queue_id, _, queue_offset, offset, flags, born_at = _FIXED.unpack(cursor.take(_FIXED.size))
    if size != len(data) or magic not in {MAGIC, MAGIC_LONG_TOPIC}:
        raise MalformedFrame(f"{len(data)} bytes are no stored message (size {size}, magic {magic:#x})")
    _host(cursor, is_v6=bool(flags & BORN_HOST_V6))
    stored_at = cursor.number(_LONG)
    store_host = _host(cursor, is_v6=bool(flags & STORE_HOST_V6))
    reconsumed, _ = cursor.number(_INT), cursor.number(_LONG)
    body, damage = _body_or_damage(cursor.take(cursor.number(_INT)), crc, flags)
    topic = _text(cursor.take(cursor.number(_SHORT) if magic == MAGIC_LONG_TOPIC else cursor.take(1)[0]))
    properties = _properties(_text(cursor.take(cursor.number(_SHORT))))
    if not cursor.at_end:
        raise MalformedFrame("a stored message has bytes after its end")
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        offset=offset,
        store_host=store_host,
        born_at_ms=born_at,
        stored_at_ms=stored_at,
        reconsumed=reconsumed,
        properties=properties,
        body=body,
        damage=damage,
    )


def _host(cursor: _Cursor, *, is_v6: bool) -> str:
    host = ipaddress.ip_address(cursor.take(16 if is_v6 else 4))
    return _address(host, cursor.number(_INT))


def _address(host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"[{host}]:{port}" if isinstance(host, ipaddress.IPv6Address) else f"{host}:{port}"


def _body_or_damage(stored: bytes, crc: int, flags: int) -> tuple[bytes, str | None]:
    try:
        return _body(stored, crc, flags), None
    except _Damaged as damage:
        return b"", str(damage)


def _body(stored: bytes, crc: int, flags: int) -> bytes:
    """The checksum is over what is stored; 0 where the broker did not write one."""
    if crc and zlib.crc32(stored) & 0x7FFF_FFFF != crc:
        raise _Damaged("its checksum is wrong")
    if not flags & COMPRESSED:
        return stored
    compression = flags >> COMPRESSION_SHIFT & COMPRESSION_MASK
    if compression not in ZLIB:
        name = COMPRESSIONS.get(compression, str(compression))
        raise _Damaged(f"it is compressed by {name}: only zlib is read here")
    return _inflated(stored)


def _inflated(stored: bytes) -> bytes:
    """Bounded: a few bytes can claim to be gigabytes."""
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(stored, FRAME_BYTES_MAX)
    except zlib.error as error:
        raise _Damaged(f"it cannot be inflated: {error}") from error
    if not inflater.eof:
        raise _Damaged("it ends early when inflated, or is too large")
    return body


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"a stored message has a text that is no UTF-8: {error}") from error


def _properties(text: str) -> dict[str, str]:
    pairs = (pair.partition(NAME_END) for pair in text.split(PROPERTY_END))
    return {name: value for name, separator, value in pairs if separator}


# --- ids --------------------------------------------------------------------------------------------------------------


def physical_id(host: str, offset: int) -> str:
    """The broker's own id of a stored message: where it is. A client's id says nothing to the broker's storage."""
    name, _, port = host.rpartition(":")
    address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    return (address.packed + _PLACE.pack(int(port), offset)).hex().upper()


def parse_physical_id(id_: str) -> tuple[str, int]:
    """Host and offset; ValueError where it is none."""
    if PHYSICAL_ID.fullmatch(id_) is None:
        raise ValueError(f"{id_!r} is no physical message id")
    raw = bytes.fromhex(id_)
    host, (port, offset) = ipaddress.ip_address(raw[: -_PLACE.size]), _PLACE.unpack(raw[-_PLACE.size :])
    if not 0 <= port <= 65_535 or offset < 0:  # noqa: PLR2004 - of TCP
        raise ValueError(f"{id_!r} is no physical message id")
    return _address(host, port), offset
