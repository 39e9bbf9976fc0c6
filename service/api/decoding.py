"""From a request's bytes to a body struct, or the one thing that is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from service.api.bodies import Body
from service.api.errors import MalformedRequest, UnsupportedMediaType
from service.domain.errors import InvalidRequest

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_FIELD = re.compile(r"field `(.*)`", re.DOTALL)
_NAME_SHOWN = 64
"""Characters of a foreign name in a problem: it may be as long as the body."""

B = TypeVar("B", bound=Body)


def decoder(kind: type[B]) -> Callable[[Mapping[bytes, bytes], bytes], B]:
    """A function from headers and bytes to a body of this kind. Where all fields may be left out, so may the body."""
    json_decoder = msgspec.json.Decoder(kind)
    may_be_absent = all(not field.required for field in msgspec.structs.fields(kind))

    def decode(headers: Mapping[bytes, bytes], raw: bytes) -> B:
        if not raw and may_be_absent:
            return kind()
        check_media_type(headers)
        try:
            body = json_decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise _invalid(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedRequest(str(error).rstrip(".")) from None
        _names.decode(raw.decode())
        return body

    return decode


def check_media_type(headers: Mapping[bytes, bytes]) -> None:
    found = headers.get(b"content-type", b"")
    media_type, _, parameters = found.partition(b";")
    charset = parameters.strip().lower().replace(b'"', b"")
    if media_type.strip().lower() != b"application/json" or charset not in {b"", b"charset=utf-8"}:
        raise UnsupportedMediaType(found.decode("latin-1")[:_NAME_SHOWN] or "no Content-Type")
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() != b"identity":
        raise UnsupportedMediaType("Content-Encoding " + coding.decode("latin-1")[:_NAME_SHOWN])


def _each_name_once(pairs: list[tuple[str, object]]) -> None:
    """Two parsers may pick different ones of two equal names. No depth harms here: the body has been decoded before."""
    names = {name for name, _ in pairs}
    if len(names) != len(pairs):
        twice = next(name for name in names if sum(name == other for other, _ in pairs) > 1)
        raise MalformedRequest("a name is given twice", twice[:_NAME_SHOWN])


_names = json.JSONDecoder(object_pairs_hook=_each_name_once)
"""Made once: json.loads makes one at each call."""


def _invalid(message: str) -> InvalidRequest:
    """msgspec's sentence, split into the field and what is wrong with it."""
    path = _PATH.search(message)
    said = message[: path.start()] if path else message
    name = path.group(1).partition("[")[0] if path else ""
    foreign = _FIELD.search(said)
    if foreign and not name:
        return InvalidRequest(foreign.group(1)[:_NAME_SHOWN], _shortened(said))
    return InvalidRequest(name or "body", _shortened(said))


def _shortened(text: str) -> str:
    limit = 3 * _NAME_SHOWN
    text = text.replace("`", "")
    return text if len(text) <= limit else text[:limit] + "…"
