"""A request and an answer, without a framework's weight: the hot path makes one of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from starlette.types import Receive, Scope, Send

from service.api.connection import WHOLE
from service.api.errors import BodyTooLarge, BodyTooSlow, ClientGone, MalformedRequest
from service.api.services import ApiServices
from service.domain.errors import InvalidRequest
from service.domain.ids import SaleId

BODY_MAX = 16 * 1024
"""Bytes of a request's body."""

BODY_S = 10.0
"""From the headers to the last byte of the body. 16 KiB come over any line in this time."""

LENGTH_DIGITS_MAX = 12

Header = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
NO_STORE: Header = (b"cache-control", b"no-store")

REQUEST_ID_KEY = "dropgate.request_id"
"""Where the front door leaves the request's id in the scope."""

SINGLE = frozenset({b"authorization", b"content-type", b"idempotency-key", b"dropgate-signature"})
"""Headers that two parties may read differently when they come twice: refused."""

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who calls: a key by its id and role, or a buyer (role `buyer`) by the `sub` of the token."""

    role: str
    id: str


@dataclass(slots=True)
class Call:
    """One request on its way. `sale_label` is the metrics' label: set once the core is asked for the sale."""

    scope: Scope
    services: ApiServices
    headers: dict[bytes, bytes]
    identity: Identity | None = None
    sale_label: SaleId | None = None

    @property
    def request_id(self) -> str:
        found: str = self.scope.get(REQUEST_ID_KEY, "")
        return found

    @property
    def params(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.scope["path_params"]
        return found

    @property
    def actor(self) -> str:
        """For audit rows: who did it."""
        return "" if self.identity is None else self.identity.id

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`code` is the problem's code, or how it went well: what the metrics count."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = field(default=(JSON, NO_STORE))
    code: str = "ok"


def json_answer(value: object, *, status: int = 200, headers: tuple[Header, ...] = (), code: str = "ok") -> Answer:
    return Answer(status=status, body=_encoder.encode(value), headers=(JSON, NO_STORE, *headers), code=code)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name. MalformedRequest where one of SINGLE comes twice."""
    raw: list[Header] = scope["headers"]
    found = dict(raw)
    if len(found) != len(raw):
        names = [name for name, _ in raw]
        for name in sorted(SINGLE):
            if names.count(name) > 1:
                raise MalformedRequest("the header is given twice: send it once", name.decode())
    return found


async def read_body(headers: Mapping[bytes, bytes], scope: Scope, receive: Receive) -> bytes:
    """The whole body, refused as soon as it is over BODY_MAX: by what it says of itself, or by what has come; or once
    it has taken longer than BODY_S."""
    _check_length(headers.get(b"content-length", b"0"))
    if WHOLE in scope:
        return await _whole(receive)
    try:
        async with asyncio.timeout(BODY_S):
            return await _whole(receive)
    except TimeoutError:
        raise BodyTooSlow(BODY_S) from None


async def _whole(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_MAX:
            raise BodyTooLarge(BODY_MAX)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_length(length: bytes) -> None:
    if not length.isdigit():
        raise MalformedRequest("the length is not a number", "Content-Length")
    if len(length) > LENGTH_DIGITS_MAX or int(length) > BODY_MAX:
        raise BodyTooLarge(BODY_MAX)


async def send_answer(answer: Answer, scope: Scope, send: Send) -> None:
    """HEAD gets the headers of GET, its length included, and no body."""
    headers = [
        *answer.headers,
        (b"content-length", b"%d" % len(answer.body)),
        (b"dropgate-request-id", scope[REQUEST_ID_KEY].encode()),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})


def one_of_ours(value: str | None, name: str, longest: int) -> str | None:
    """A header's value as printable ASCII of a bounded length; None if it is absent."""
    if value is None:
        return None
    if not value.strip() or len(value) > longest or not (value.isascii() and value.isprintable()):
        raise InvalidRequest(name, f"send 1 to {longest} printable ASCII characters")
    return value
