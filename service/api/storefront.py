"""What a storefront and its buyers call."""

from __future__ import annotations

from functools import lru_cache

from service.api.auth import May, buyer_of, check_buyer, check_owner, reservation_id_of
from service.api.bodies import CancelBody, NoBody, RefundBody, ReserveBody
from service.api.http import JSON, Answer, Call, Header, json_answer, one_of_ours
from service.api.views import reservation_view, sale_view
from service.core.reserve import ReserveRequest
from service.domain.errors import InvalidRequest, NotFound
from service.domain.ids import SALE_ID, BuyerId, ReservationId, SaleId
from service.domain.reservation import Reason, Reservation
from service.observability.metrics import REQUESTS, RESERVE_SECONDS

KEY_MAX = 255
REPLAYED: Header = (b"idempotent-replayed", b"true")
CACHE_1_S: Header = (b"cache-control", b"max-age=1")

REASONS: dict[str, tuple[Reason, ...]] = {
    May.STOREFRONT: (Reason.BUYER_CANCELLED,),
    May.BUYER: (Reason.BUYER_CANCELLED,),
    May.PARTICIPANT: (Reason.PARTICIPANT_CANCELLED, Reason.FULFILMENT_FAILED),
    May.OPERATOR: (Reason.OPERATOR_CANCELLED, Reason.FULFILMENT_FAILED, Reason.BUYER_CANCELLED),
}
"""What each role may say when it cancels; the first is what it says when it says nothing."""


async def reserve(call: Call, body: ReserveBody) -> Answer:
    """Reserve units for a buyer."""
    services = call.services
    check_buyer(call, body.buyer_id)
    request = ReserveRequest(
        sale_id=sale_id_of(call),
        buyer_id=BuyerId(body.buyer_id),
        quantity=body.quantity,
        key=one_of_ours(call.header(b"idempotency-key"), "Idempotency-Key", KEY_MAX),
        coupon_code=body.coupon_code,
        metadata=body.metadata,
    )
    call.sale_label = request.sale_id
    answer = await services.reserve.reserve(request)
    view = reservation_view(answer.reservation, services.clock.now_ms())
    if answer.replayed:
        return json_answer(view, headers=(REPLAYED,), code="replayed")
    return json_answer(view, status=202, headers=(_location(answer.reservation.id),), code="accepted")


def observe_reserve(call: Call, answer: Answer, seconds: float) -> None:
    """Once a request. A sale that no store knows is no label: anybody can think of names."""
    known = call.sale_label is not None and answer.code != "sale_not_found"
    _requests(call.sale_label if known else "", answer.code).inc()
    RESERVE_SECONDS.observe(seconds)


_requests = lru_cache(maxsize=4_096)(REQUESTS.labels)
"""The labels of a metric by the quick way: a few of them are wanted thousands of times a second."""


async def read_reservation(call: Call, _: NoBody) -> Answer:
    """Read a reservation."""
    return _shown(call, await _own(call, reservation_id_of(call)))


async def cancel(call: Call, body: CancelBody) -> Answer:
    """Cancel a reservation and give its units back."""
    reason = _reason(call, body.reason)
    id_ = await _own_id(call)
    return _shown(call, await call.services.endings.cancel(id_, reason))


async def start_payment(call: Call, _: NoBody) -> Answer:
    """Say that a payment is under way: the order waits longer for it, once."""
    id_ = await _own_id(call)
    return _shown(call, await call.services.endings.start_payment(id_))


async def refund(call: Call, body: RefundBody) -> Answer:
    """Ask for the refund of a paid order."""
    id_ = reservation_id_of(call)
    refunded = await call.services.endings.refund(id_, restock=body.restock, why=body.reason, actor=call.actor)
    return _shown(call, refunded)


async def show_sale(call: Call, _: NoBody) -> Answer:
    """Show a sale to buyers."""
    public = await call.services.sales.public(sale_id_of(call))
    shown = json_answer(sale_view(public, call.services.clock.now_ms()))
    return Answer(status=shown.status, body=shown.body, headers=(JSON, CACHE_1_S))


def sale_id_of(call: Call) -> SaleId:
    """The path's sale. What cannot be an id is the id of no sale."""
    text = call.params["sale"]
    if not SALE_ID.fullmatch(text):
        raise NotFound("sale", text)
    return SaleId(text)


async def _own_id(call: Call) -> ReservationId:
    """The path's id, once it is certain that a buyer who calls owns it. A key acts on all."""
    id_ = reservation_id_of(call)
    if buyer_of(call) is not None:
        await _own(call, id_)
    return id_


async def _own(call: Call, id_: ReservationId) -> Reservation:
    reservation = await call.services.reservations.get(id_)
    check_owner(call, reservation)
    return reservation


def _reason(call: Call, said: str | None) -> Reason:
    allowed = REASONS[call.identity.role] if call.identity is not None else ()
    if said is None:
        return allowed[0]
    if said not in allowed:
        raise InvalidRequest("reason", "this role may say " + " or ".join(allowed))
    return Reason(said)


def _shown(call: Call, reservation: Reservation) -> Answer:
    return json_answer(reservation_view(reservation, call.services.clock.now_ms()))


def _location(id_: ReservationId) -> Header:
    return (b"location", b"/v1/reservations/" + id_.encode())
