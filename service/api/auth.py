"""Who calls, and whether they may: bearer keys with roles, buyers' tokens. The table is in routes.py."""

from __future__ import annotations

from enum import StrEnum

import jwt

from service.api.bodies import BUYER_BYTES_MAX
from service.api.http import Call, Identity
from service.domain.errors import Forbidden, NotFound, Unauthenticated
from service.domain.ids import BuyerId, ReservationId, buyer_tag, parse_reservation_id
from service.domain.reservation import Reservation

TOKEN_MAX = 4096
_JWT_DOTS = 2
_LEEWAY_S = 5
"""Between the clocks of the storefront that signs and this process."""


class May(StrEnum):
    """Who may make a call. The first five are core's roles, by the same names."""

    STOREFRONT = "storefront"
    PAYMENTS = "payments"
    PARTICIPANT = "participant"
    VIEWER = "viewer"
    OPERATOR = "operator"
    BUYER = "buyer"
    """A token signed by the storefront; `sub` is the buyer, who sees and acts on own reservations only."""
    SIGNED = "signed"
    """Whoever signs the body: no bearer is looked at."""
    ANYONE = "anyone"


OPEN = frozenset({May.ANYONE, May.SIGNED})


def admit(call: Call, may: frozenset[May]) -> None:
    """Set `call.identity`, or Unauthenticated or Forbidden. Open calls look at no bearer."""
    if may & OPEN:
        return
    identity = identify(call)
    if identity.role not in may:
        raise Forbidden("one of the roles " + ", ".join(sorted(may)))
    call.identity = identity


def identify(call: Call) -> Identity:
    scheme, _, token = (call.header(b"authorization") or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > TOKEN_MAX:
        raise Unauthenticated("No bearer key or token came")
    principal = call.services.keys.authenticate(token)
    if principal is not None:
        return Identity(role=principal.role, id=principal.key_id)
    return Identity(role=May.BUYER, id=_buyer_of(token, call.services.jwt_secret, call.services.jwt_audience))


def _buyer_of(token: str, secret: str | None, audience: str | None) -> str:
    """`sub` of a buyer's token. It must be HS256, must expire, must be valid already where it says from when, must be
    meant for us where we have a name, and `sub` must be an id that a buyer can have."""
    if token.count(".") != _JWT_DOTS:
        raise Unauthenticated("The key is not known")
    if secret is None:
        raise Unauthenticated("Buyers' tokens are off: DROPGATE_JWT_SECRET is not set")
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=["HS256"],
            audience=audience,
            leeway=_LEEWAY_S,
            options={
                "require": ["exp", "sub"] if audience is None else ["exp", "sub", "aud"],
                "verify_aud": audience is not None,
            },
        )
    except jwt.PyJWTError as error:
        raise Unauthenticated(_why(error)) from None
    subject = claims["sub"]
    if not isinstance(subject, str) or not is_buyer_id(subject):
        raise Unauthenticated("The token's sub is no buyer's id")
    return subject


_WHY: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "The token has expired",
    jwt.ImmatureSignatureError: "The token is not valid yet",
    jwt.InvalidSignatureError: "The token's signature does not hold",
    jwt.InvalidAudienceError: "The token's aud is not this service",
}


def _why(error: jwt.PyJWTError) -> str:
    """What is wrong with a token, for the shop's engineer. Its claims are looked at once its signature holds."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"The token has no {error.claim}"
    return next((words for kind, words in _WHY.items() if isinstance(error, kind)), "The token is no valid HS256 JWT")


def is_buyer_id(text: str) -> bool:
    return bool(text) and text.isprintable() and len(text.encode()) <= BUYER_BYTES_MAX


def buyer_of(call: Call) -> BuyerId | None:
    """The buyer who calls; None if it is a key."""
    identity = call.identity
    return BuyerId(identity.id) if identity is not None and identity.role == May.BUYER else None


def check_buyer(call: Call, buyer_id: str) -> None:
    """A buyer reserves for no one else."""
    buyer = buyer_of(call)
    if buyer is not None and buyer != buyer_id:
        raise Forbidden("a buyer_id that is the token's sub")


def reservation_id_of(call: Call) -> ReservationId:
    """The path's id. NotFound if it is none, or carries another buyer's hash: no store is asked."""
    text = call.params["reservation"]
    parsed = parse_reservation_id(text)
    buyer = buyer_of(call)
    if parsed is None or (buyer is not None and not parsed[1].startswith(buyer_tag(buyer))):
        raise NotFound("reservation", text)
    return ReservationId(text)


def check_owner(call: Call, reservation: Reservation) -> None:
    """NotFound for another buyer's reservation: that it exists is not this buyer's to know."""
    buyer = buyer_of(call)
    if buyer is not None and reservation.buyer_id != buyer:
        raise NotFound("reservation", reservation.id)
