"""The API as one table: every call, who may make it, what it takes and answers. /openapi.json is made from it."""

from __future__ import annotations

from functools import cache

from service.api import admin, ops, payments, replays, storefront
from service.api.auth import May
from service.api.bodies import (
    CancelBody,
    NoBody,
    OpenBody,
    PaymentBody,
    RefundBody,
    ReplayBody,
    ReserveBody,
    SaleBody,
    SalePatch,
    StockBody,
)
from service.api.http import Answer, Call, json_answer
from service.api.openapi import document
from service.api.replay_views import DeadLettersView, InDoubtView, ReplayView
from service.api.routing import Route, route
from service.api.views import (
    AdminSaleView,
    HealthView,
    LedgerView,
    PaymentView,
    ReadyView,
    ReservationView,
    SalesView,
    SaleView,
)
from service.domain.sale import SaleStatus

ANYONE = frozenset({May.ANYONE})
SIGNED = frozenset({May.SIGNED})
SHOPS = frozenset({May.STOREFRONT, May.BUYER})
"""An operator does not buy: whoever holds that key reserves with a storefront's."""
READERS = frozenset({May.STOREFRONT, May.PAYMENTS, May.PARTICIPANT, May.VIEWER, May.OPERATOR, May.BUYER})
CANCELLERS = frozenset({May.STOREFRONT, May.PARTICIPANT, May.OPERATOR, May.BUYER})
PAYING = frozenset({May.STOREFRONT, May.PAYMENTS, May.BUYER})
REFUNDERS = frozenset({May.PARTICIPANT, May.OPERATOR})
VIEWERS = frozenset({May.VIEWER, May.OPERATOR})
OPERATORS = frozenset({May.OPERATOR})

RESERVATION = {200: ReservationView}
RESERVED = {202: ReservationView, 200: ReservationView}
SALE = {200: AdminSaleView}
WARMED = {200: AdminSaleView, 202: AdminSaleView}
MADE = {201: AdminSaleView}

UNKNOWN = {503: ("outcome_unknown",)}
BUSY = {429: ("too_busy",)}
NOT_RESERVED = {
    409: ("sold_out", "limit_reached", "sale_not_open", "sale_closed"),
    422: ("idempotency_key_reused",),
    **BUSY,
    **UNKNOWN,
}
NOT_CANCELLED = {409: ("already_paid", "already_final"), **BUSY, **UNKNOWN}
NOT_PAYABLE = {409: ("not_payable",), **BUSY, **UNKNOWN}
NOT_REFUNDED = {409: ("not_payable", "already_final"), **BUSY, **UNKNOWN}
TAKEN = {409: ("sale_exists",)}
STATUS = {409: (*(f"sale_is_{status.value}" for status in SaleStatus), "sale_changed_meanwhile")}
NOT_OPENED = {409: (*STATUS[409], "sale_not_warm")}
SETTLED = {409: ("sale_is_settled",)}
TOO_LOW = {409: ("stock_too_low", *SETTLED[409]), **UNKNOWN}
REPLAYED = {200: ReplayView, 201: ReplayView}
NO_SALE = {404: ("sale_not_found",), **UNKNOWN}
OF_SALE = {"sale": "Only this sale's."}
NOT_READY = {503: ("not_ready",)}


async def openapi(_call: Call, _: NoBody) -> Answer:
    """Describe this API."""
    return json_answer(_document())


@cache
def _document() -> dict[str, object]:
    return document(ROUTES)


ROUTES: tuple[Route, ...] = (
    route("POST /v1/sales/{sale}/reservations", storefront.reserve, ReserveBody, SHOPS, RESERVED, NOT_RESERVED,
          observe=storefront.observe_reserve),
    route("GET /v1/reservations/{reservation}", storefront.read_reservation, NoBody, READERS, RESERVATION, UNKNOWN),
    route("POST /v1/reservations/{reservation}/cancel",
          storefront.cancel, CancelBody, CANCELLERS, RESERVATION, NOT_CANCELLED),
    route("POST /v1/reservations/{reservation}/payment-started",
          storefront.start_payment, NoBody, PAYING, RESERVATION, NOT_PAYABLE),
    route("POST /v1/reservations/{reservation}/refund",
          storefront.refund, RefundBody, REFUNDERS, RESERVATION, NOT_REFUNDED),
    route("POST /v1/payments", payments.receive_payment, PaymentBody, SIGNED, {200: PaymentView}, UNKNOWN),
    route("GET /v1/sales/{sale}", storefront.show_sale, NoBody, ANYONE, {200: SaleView}),
    route("POST /admin/v1/sales", admin.create_sale, SaleBody, OPERATORS, MADE, TAKEN),
    route("GET /admin/v1/sales", admin.list_sales, NoBody, VIEWERS, {200: SalesView}),
    route("GET /admin/v1/sales/{sale}", admin.read_sale, NoBody, VIEWERS, SALE),
    route("PATCH /admin/v1/sales/{sale}", admin.change_sale, SalePatch, OPERATORS, SALE, SETTLED),
    route("POST /admin/v1/sales/{sale}/warm", admin.warm_sale, NoBody, OPERATORS, WARMED, STATUS),
    route("POST /admin/v1/sales/{sale}/open", admin.open_sale, OpenBody, OPERATORS, WARMED, NOT_OPENED),
    route("POST /admin/v1/sales/{sale}/close", admin.close_sale, NoBody, OPERATORS, SALE, STATUS),
    route("POST /admin/v1/sales/{sale}/settle", admin.settle_sale, NoBody, OPERATORS, SALE, STATUS),
    route("POST /admin/v1/sales/{sale}/stock", admin.adjust_stock, StockBody, OPERATORS, SALE, TOO_LOW),
    route("GET /admin/v1/sales/{sale}/ledger", admin.read_ledger, NoBody, VIEWERS, {200: LedgerView}),
    route("GET /admin/v1/in-doubt", replays.list_in_doubt, NoBody, VIEWERS, {200: InDoubtView}, NO_SALE,
          queries=OF_SALE),
    route("POST /admin/v1/replays", replays.replay, ReplayBody, OPERATORS, REPLAYED, NO_SALE),
    route("GET /admin/v1/replays/{replay}", replays.read_replay, NoBody, VIEWERS, {200: ReplayView}, UNKNOWN),
    route("GET /admin/v1/dead-letters", replays.list_dead_letters, NoBody, VIEWERS, {200: DeadLettersView}),
    route("GET /healthz", ops.healthz, NoBody, ANYONE, {200: HealthView}),
    route("GET /readyz", ops.readyz, NoBody, ANYONE, {200: ReadyView}, NOT_READY),
    route("GET /metrics", ops.metrics, NoBody, ANYONE, {200: None}),
    route("GET /openapi.json", openapi, NoBody, ANYONE, {200: None}),
)  # fmt: skip
"""The hot path first: routes are tried in order."""
