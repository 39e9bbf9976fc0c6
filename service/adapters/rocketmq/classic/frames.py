"""What a consumer and its child process say to each other: length, then MessagePack, over a socket pair.

Both ends are of one release, as the parent starts the child. Whatever does not fit is a BrokenFrame, and the child is
replaced.
"""

from __future__ import annotations

import socket
import struct
from asyncio import StreamReader

import msgspec

FRAME_BYTES_MAX = 32 * 1024 * 1024
"""A broker takes 4 MB a message, or what its operator allows: this is above all that was ever sensible."""

_LENGTH = struct.Struct(">I")


class BrokenFrame(Exception):
    """What arrived is no frame."""


class Begin(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The first frame to the child: not on its command line, which others on the machine may read."""

    name_servers: str
    topic: str
    group: str
    instance: str
    threads: int
    cached_max: int
    silence_max_s: float
    access_key: str
    secret_key: str


class Settled(msgspec.Struct, tag=True, frozen=True):
    """The message of this number is done: the client may count it as consumed."""

    number: int


class Ping(msgspec.Struct, tag=True, frozen=True):
    """Asked of the child; the answer is the same frame."""


class Begun(msgspec.Struct, tag=True, frozen=True):
    """The client has started."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """It has not, and the child ends."""

    why: str


class Message(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """One that the child's client holds until it is settled. `offset` is its place in the broker's commit log."""

    number: int
    topic: str
    message_id: str
    key: str
    body: bytes
    reconsumed: int
    born_at_ms: int
    queue_id: int
    queue_offset: int
    offset: int
    properties: dict[str, str]


ToChild = Begin | Settled | Ping
ToParent = Begun | Failed | Message | Ping

_encode = msgspec.msgpack.Encoder().encode
_to_child = msgspec.msgpack.Decoder(ToChild)
_to_parent = msgspec.msgpack.Decoder(ToParent)


def encode(frame: ToChild | ToParent) -> bytes:
    data = _encode(frame)
    return _LENGTH.pack(len(data)) + data


async def read(stream: StreamReader) -> ToParent:
    """The child's next; IncompleteReadError where it has ended."""
    size = _size(await stream.readexactly(_LENGTH.size))
    try:
        return _to_parent.decode(await stream.readexactly(size))
    except msgspec.MsgspecError as error:
        raise BrokenFrame(str(error)) from error


def receive(connection: socket.socket) -> ToChild | None:
    """The parent's next, within the socket's own time-out. None: it has ended."""
    head = _exactly(connection, _LENGTH.size)
    data = _exactly(connection, _size(head)) if head is not None else None
    if data is None:
        return None
    try:
        return _to_child.decode(data)
    except msgspec.MsgspecError as error:
        raise BrokenFrame(str(error)) from error


def _size(head: bytes) -> int:
    (size,) = _LENGTH.unpack(head)
    if size > FRAME_BYTES_MAX:
        raise BrokenFrame(f"a frame of {size} bytes is announced: at most {FRAME_BYTES_MAX}")
    return int(size)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = connection.recv(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
