"""Errors that only HTTP knows; they hang on the tree of domain/errors.py.

Refused
├── MalformedRequest        400  not JSON, not UTF-8, a name or a header given twice
├── InvalidSignature        401  a payment report that the payment side did not sign
├── NoSuchRoute             404
├── MethodNotAllowed        405  `allowed` goes into Allow
├── BodyTooSlow             408
├── BodyTooLarge            413
└── UnsupportedMediaType    415
NotReady                    503  `missing` says what for
"""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.errors import DropgateError, Refused


class MalformedRequest(Refused):
    """The request cannot be read."""

    code = "malformed_request"

    def __init__(self, problem: str, field: str | None = None) -> None:
        super().__init__(problem, field)
        self.problem = problem
        self.field = field


class InvalidSignature(Refused):
    """The Dropgate-Signature header does not sign this body."""

    code = "invalid_signature"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class NoSuchRoute(Refused):
    """There is nothing at this path."""

    code = "not_found"


class MethodNotAllowed(Refused):
    """The path is right, the method is not."""

    code = "method_not_allowed"

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(allowed)
        self.allowed = allowed


class BodyTooSlow(Refused):
    """The body did not come in time."""

    code = "request_timeout"

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s


class BodyTooLarge(Refused):
    """The body is over the limit."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class UnsupportedMediaType(Refused):
    """The body is not application/json."""

    code = "unsupported_media_type"

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


class NotReady(DropgateError):
    """This process cannot sell yet."""

    code = "not_ready"

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(missing)
        self.missing = missing


class ClientGone(Exception):
    """The client went away before its request was whole: nobody is left to answer."""
