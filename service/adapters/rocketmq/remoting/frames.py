"""Frames of the remoting protocol: length, header length with the header's kind in its first byte, header, body.

What arrives is not trusted: a frame has a largest size, and whatever does not fit is a MalformedFrame."""

from __future__ import annotations

import struct
from asyncio import StreamReader
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""The broker's own bound for what it takes (`com.rocketmq.remoting.frameMaxLength`)."""
HEADER_BYTES_MAX = 0xFF_FFFF
JSON_HEADER = 0
ANSWER = 1
"""Bit of `flag`: the frame answers a question."""

_INT = struct.Struct(">i")


class MalformedFrame(Exception):
    """What arrived is no frame of the remoting protocol, or is larger than allowed."""


@dataclass(frozen=True, kw_only=True)
class Request:
    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One that arrived. A server asks questions too: then `is_answer` is False."""

    code: int
    opaque: int
    is_answer: bool
    remark: str
    fields: Mapping[str, str]
    body: bytes


class _HeaderOut(msgspec.Struct, kw_only=True):
    code: int
    opaque: int
    extFields: Mapping[str, str]  # noqa: N815 - the protocol's name
    flag: int = 0
    language: str = "PYTHON"
    version: int = 0
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815 - the protocol's name


class _HeaderIn(msgspec.Struct, kw_only=True):
    """Its other members (language, version) say nothing that is of use here."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    extFields: dict[str, str | None] | None = None  # noqa: N815 - the protocol's name


_encode_json = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(_HeaderIn).decode


def encode(request: Request, opaque: int) -> bytes:
    header = _encode_json(_HeaderOut(code=request.code, opaque=opaque, extFields=request.fields))
    size = _INT.size + len(header) + len(request.body)
    if size > FRAME_BYTES_MAX:
        raise MalformedFrame(f"a frame of {size} bytes would be too large: at most {FRAME_BYTES_MAX}")
    return b"".join((_INT.pack(size), _INT.pack(JSON_HEADER << 24 | len(header)), header, request.body))


async def read(stream: StreamReader) -> Frame:
    """The next frame. MalformedFrame, or IncompleteReadError where the stream ends."""
    (size,) = _INT.unpack(await stream.readexactly(_INT.size))
    if not _INT.size <= size <= FRAME_BYTES_MAX:
        raise MalformedFrame(f"a frame of {size} bytes is announced: {_INT.size} to {FRAME_BYTES_MAX} are allowed")
    return decode(await stream.readexactly(size))


def decode(frame: bytes) -> Frame:
    """A frame without its length."""
    (marked,) = _INT.unpack_from(frame)
    kind, length = (marked >> 24) & 0xFF, marked & HEADER_BYTES_MAX
    if kind != JSON_HEADER:
        raise MalformedFrame(f"its header is of kind {kind}: only JSON ({JSON_HEADER}) was asked for")
    end = _INT.size + length
    if end > len(frame):
        raise MalformedFrame(f"a header of {length} bytes is announced in a frame of {len(frame)}")
    try:
        header = _decode_header(frame[_INT.size : end])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"its header cannot be read: {error}") from error
    return Frame(
        code=header.code,
        opaque=header.opaque,
        is_answer=bool(header.flag & ANSWER),
        remark=header.remark or "",
        fields={name: value for name, value in (header.extFields or {}).items() if value is not None},
        body=frame[end:],
    )
