"""POST /v1/payments: what the payment side reports. The signature is the key, checked before the body is parsed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from service.api.bodies import PaymentBody
from service.api.errors import InvalidSignature
from service.api.http import Answer, Call, json_answer
from service.api.views import PaymentView
from service.domain.ids import PaymentId, ReservationId
from service.domain.payment import Payment

HEADER_MAX = 2048
_TIME_DIGITS_MAX = 12


async def receive_payment(call: Call, body: PaymentBody) -> Answer:
    """Report what became of a payment."""
    payment = Payment(
        id=PaymentId(body.payment_id),
        reservation_id=ReservationId(body.reservation_id),
        status=body.status,
        amount=body.amount,
        currency=body.currency,
    )
    outcome = await call.services.payments.receive(payment)
    return json_answer(PaymentView(applied=outcome))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """`t=…,v1=…`: the time as it was signed, and every v1 that is offered."""

    time: str
    offered: tuple[bytes, ...]


def check_signature(call: Call, raw: bytes) -> None:
    """InvalidSignature unless one of the secrets signed these bytes, at a time that is near."""
    services = call.services
    if not services.payment_secrets:
        raise InvalidSignature("this service has no payment secret yet: its operator sets DROPGATE_PAYMENT_SECRETS")
    signature = _parse(call.header(b"dropgate-signature"))
    if not _is_signed(signature, raw, services.payment_secrets):
        raise InvalidSignature("no v1 of Dropgate-Signature signs this body with a secret of this service")
    away_ms = abs(services.clock.now_ms() - int(signature.time) * 1000)
    if away_ms > services.payment_tolerance_s * 1000:
        raise InvalidSignature(f"the signature's time is more than {services.payment_tolerance_s} s from now")


def _parse(header: str | None) -> Signature:
    if header is None:
        raise InvalidSignature("the header Dropgate-Signature is missing")
    pairs = [part.strip().partition("=") for part in header[:HEADER_MAX].split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    offered = tuple(value.encode("latin-1") for name, _, value in pairs if name == "v1")
    if len(times) != 1 or not offered or not _is_time(times[0]):
        raise InvalidSignature("the header Dropgate-Signature needs one t in seconds and at least one v1")
    return Signature(time=times[0], offered=offered)


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS_MAX


def _is_signed(signature: Signature, raw: bytes, secrets: Sequence[bytes]) -> bool:
    """Every secret against every v1, whichever fits: the time it takes tells nothing."""
    signed = signature.time.encode() + b"." + raw
    fits = False
    for secret in secrets:
        expected = hmac.new(secret, signed, hashlib.sha256).hexdigest().encode()
        for offered in signature.offered:
            fits |= hmac.compare_digest(expected, offered)
    return fits
