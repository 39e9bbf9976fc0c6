"""From an error to an RFC 9457 problem: one table of classes to statuses, one of codes to words."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from service.api import errors as http_errors
from service.api.http import NO_STORE, Answer, Header, json_answer
from service.domain import errors
from service.domain.sale import SaleStatus
from service.observability.actions import Action
from service.observability.log import error as log_error

STATUS_OF: dict[type[BaseException], int] = {
    http_errors.MalformedRequest: 400,
    http_errors.InvalidSignature: 401,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    http_errors.NoSuchRoute: 404,
    errors.NotFound: 404,
    http_errors.MethodNotAllowed: 405,
    http_errors.BodyTooSlow: 408,
    errors.Conflict: 409,
    http_errors.BodyTooLarge: 413,
    http_errors.UnsupportedMediaType: 415,
    errors.InvalidRequest: 422,
    errors.IdempotencyKeyReused: 422,
    errors.Busy: 429,
    http_errors.NotReady: 503,
    errors.InDoubt: 503,
    Exception: 500,
}
"""The first class of an error's MRO that is here gives its status."""

RETRY_AFTER_S = 2
"""After a 503: the next read of the sale's row is at most 0.5 s away, a rebuild takes seconds."""

PROBLEM_JSON: Header = (b"content-type", b"application/problem+json")


@dataclass(frozen=True, slots=True)
class Words:
    """What a code means, and what the caller can do."""

    title: str
    remedy: str


_NEXT_ACTS = {
    SaleStatus.DRAFT: "It can be warmed.",
    SaleStatus.READY: "It can be warmed and opened.",
    SaleStatus.OPEN: "It can be warmed and closed.",
    SaleStatus.CLOSED: "It can be warmed, opened and settled.",
    SaleStatus.SETTLED: "Nothing can be done with it any more.",
}

WORDS: dict[str, Words] = {
    "malformed_request": Words("The request cannot be read", "Send one JSON object in UTF-8, each name once."),
    "invalid_request": Words("A field of the request is wrong", "Correct the field that `param` names."),
    "request_timeout": Words("The body did not come in time", "Send it whole within 10 s of its headers."),
    "body_too_large": Words("The body is too large", "Send at most 16 KiB."),
    "unsupported_media_type": Words("The body is not JSON", "Send Content-Type: application/json, uncompressed."),
    "unauthenticated": Words(
        "A valid key is missing",
        "Send Authorization: Bearer with a key of `dropgate key create`, or a buyer's token.",
    ),
    "invalid_signature": Words(
        "The signature does not hold",
        "Sign `t.body` with HMAC-SHA256: Dropgate-Signature: t=UNIX_SECONDS,v1=HEX.",
    ),
    "forbidden": Words("This caller may not do this", "Use a key of a role that may."),
    "not_found": Words("There is nothing at this path", "See /openapi.json."),
    "sale_not_found": Words("There is no such sale", "Check the sale's id."),
    "reservation_not_found": Words(
        "There is no such reservation", "Check the id. It holds nothing; a buyer sees own reservations only."
    ),
    "replay_not_found": Words("There is no such replay", "Check its id. A dry run has none: it is not stored."),
    "method_not_allowed": Words("The path does not know this method", "Use one that Allow names."),
    "sold_out": Words(
        "Sold out",
        "If `final` is false, units may come back from unpaid orders: try again with the same key.",
    ),
    "limit_reached": Words(
        "The buyer's limit is reached", "The buyer holds `held_reservation_id` already: pay it or cancel it."
    ),
    "sale_not_open": Words("The sale is not open yet", "Look at `opens_at` of GET /v1/sales/{sale}."),
    "sale_closed": Words(
        "The sale is closed", "Nothing can be reserved now; reservations made before stay as they are."
    ),
    "already_paid": Words("The order is paid", "Ask for a refund instead of a cancellation."),
    "not_payable": Words("The order does not allow this", "GET the reservation: its `status` says where it stands."),
    "already_final": Words(
        "The reservation has ended", "GET the reservation: `status` and `reason` say how. Nothing changes."
    ),
    "sale_exists": Words("The id is another sale's", "Choose another id, or change that sale's rules."),
    "sale_not_warm": Words("The sale is not loaded", "Warm it and wait, or open it with `warm`: true."),
    "sale_changed_meanwhile": Words("Another operator acted at the same time", "Read the sale and decide again."),
    "stock_too_low": Words("Fewer units are left than this would take", "Take at most what is `available`."),
    **{f"sale_is_{status.value}": Words(f"The sale is {status.value}", _NEXT_ACTS[status]) for status in SaleStatus},
    "idempotency_key_reused": Words(
        "The Idempotency-Key was used with another body",
        "Send a new key, or the body that the key was first sent with.",
    ),
    "too_busy": Words("Too many requests wait", "Try again after Retry-After, with the same key."),
    "rate_limited": Words("Too many requests", "Try again after Retry-After, with the same key."),
    "outcome_unknown": Words(
        "What came of it is not known yet",
        "Ask again after Retry-After, with the same Idempotency-Key, or GET the reservation. Do not tell the buyer no.",
    ),
    "unavailable": Words("A part of the service is away", "Try again after Retry-After, with the same key."),
    "not_ready": Words("This process cannot sell yet", "`missing` says what for, and the remedy."),
    "internal_error": Words(
        "Something went wrong here",
        "Try again with the same Idempotency-Key; tell the operator the request's id.",
    ),
}
"""Every code of this API. Codes are stable; titles and remedies are for people."""

OTHER = Words("The state forbids it", "GET what you act on, and see what its state allows.")
"""For the words of an operator's conflict that has none of its own."""


def status_of(kind: type[BaseException]) -> int:
    return next(STATUS_OF[base] for base in kind.__mro__ if base in STATUS_OF)


def problem(error: Exception, request_id: str) -> Answer:
    """The answer to an error. One that nobody foresaw is logged with the request's id, and tells nothing else."""
    status = status_of(type(error))
    if status == status_of(Exception):
        _log_unforeseen(error, request_id)
    code = code_of(error)
    words = WORDS.get(code, OTHER)
    body = {
        "type": f"urn:problem-type:dropgate:{code}",
        "title": words.title,
        "status": status,
        "detail": _detail(error, words),
        "code": code,
        **_facts(error),
        "request_id": request_id,
    }
    encoded = json_answer(body).body
    return Answer(status=status, body=encoded, headers=(PROBLEM_JSON, NO_STORE, *_headers(error)), code=code)


def code_of(error: Exception) -> str:
    match error:
        case errors.NotFound(kind=kind):
            return f"{kind}_not_found"
        case errors.Conflict(conflict=conflict):
            return conflict
        case errors.DropgateError() if status_of(type(error)) != status_of(Exception):
            return error.code
        case _:
            return "internal_error"


def _detail(error: Exception, words: Words) -> str:
    match error:
        case errors.InvalidRequest(field=field, problem=why):
            return f"{field}: {why}."
        case http_errors.MalformedRequest(problem=why) | http_errors.InvalidSignature(problem=why):
            return f"{why[:1].upper()}{why[1:]}. {words.remedy}"
        case http_errors.UnsupportedMediaType(found=found):
            return f"Found {found}. {words.remedy}"
        case errors.Unauthenticated(why=str(why)):
            return f"{why}. {words.remedy}"
        case errors.Forbidden(needs=needs):
            return f"Needs {needs}. {words.remedy}"
        case _:
            return words.remedy


def _facts(error: Exception) -> dict[str, object]:
    """The problem's own members. What is None is left out."""
    match error:
        case errors.InvalidRequest(field=field) | http_errors.MalformedRequest(field=field):
            facts: dict[str, object] = {"param": field}
        case errors.Conflict(reservation_id=id_, held_reservation_id=held, final=final):
            facts = {"reservation_id": id_, "held_reservation_id": held, "final": final}
        case errors.OutcomeUnknown(reservation_id=id_) | errors.IdempotencyKeyReused(reservation_id=id_):
            facts = {"reservation_id": id_}
        case http_errors.NotReady(missing=missing):
            facts = {"missing": list(missing)}
        case _:
            facts = {}
    return {name: value for name, value in facts.items() if value is not None}


def _headers(error: Exception) -> tuple[Header, ...]:
    match error:
        case errors.Busy(retry_after_s=seconds):
            return ((b"retry-after", b"%d" % seconds),)
        case errors.InDoubt() | http_errors.NotReady():
            return ((b"retry-after", b"%d" % RETRY_AFTER_S),)
        case errors.Unauthenticated():
            return ((b"www-authenticate", b'Bearer realm="dropgate"'),)
        case http_errors.InvalidSignature():
            return ((b"www-authenticate", b"Dropgate-Signature"),)
        case http_errors.MethodNotAllowed(allowed=allowed):
            return ((b"allow", ", ".join(allowed).encode()),)
        case http_errors.BodyTooLarge() | http_errors.BodyTooSlow():
            # The rest of the body is not read: the connection cannot be used again.
            return ((b"connection", b"close"),)
        case _:
            return ()


def _log_unforeseen(error: Exception, request_id: str) -> None:
    trace = "".join(traceback.format_exception(error))
    log_error(Action.REQUEST_FAILED, request_id=request_id, error=type(error).__name__, traceback=trace)
