"""A Dropgate of eighty lines, in memory: enough HTTP for the demo's buyers, with faults on request."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from service.domain.ids import BuyerId, SaleId, reservation_id

WINDOW_S = 2.0
"""Longer than the demo's buyers need who mean to pay, also where many tests run at a time."""
ORDER_AFTER_S = 0.02


@dataclass
class FakeService:
    """`hiccups`: so many reserves are answered 503 first. `forget`: so many winners are never told an end.
    `contradict`: so many times a cancelled order is shown as waiting for its payment again."""

    stock: int
    hiccups: int = 0
    forget: int = 0
    contradict: int = 0
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    payments: dict[str, str] = field(default_factory=dict)
    refunds: int = 0
    requests: int = 0

    def tick(self) -> None:
        """Orders appear a little after their reservation, and lapse when their window is over."""
        for row in self.reservations.values():
            if row["status"] == "queued" and time.time() > row["made"] + ORDER_AFTER_S and not row["stuck"]:
                row["status"] = "awaiting_payment"
            if row["status"] == "awaiting_payment" and time.time() > row["made"] + WINDOW_S:
                row.update(status="cancelled", reason="payment_timeout")

    def live(self, *states: str) -> int:
        return sum(row["status"] in states for row in self.reservations.values())

    async def reserve(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.tick()
        if self.hiccups > 0:
            self.hiccups -= 1
            return problem(503, "outcome_unknown", retry_after="0")
        body = await request.json()
        id_ = reservation_id(
            SaleId(request.match_info["sale"]), BuyerId(body["buyer_id"]), request.headers["Idempotency-Key"]
        )
        if id_ in self.reservations:
            return web.json_response(self.view(id_), headers={"Idempotent-Replayed": "true"})
        if self.live("queued", "awaiting_payment", "paid") >= self.stock:
            return problem(409, "sold_out", final=False)
        stuck, self.forget = self.forget > 0, max(0, self.forget - 1)
        self.reservations[id_] = {"status": "queued", "reason": None, "made": time.time(), "stuck": stuck}
        return web.json_response(self.view(id_), status=202)

    def view(self, id_: str) -> dict[str, Any]:
        row = self.reservations[id_]
        expires = (
            datetime.fromtimestamp(row["made"] + WINDOW_S, UTC).isoformat()
            if row["status"] == "awaiting_payment"
            else None
        )
        return {
            "id": id_,
            "sale_id": "demo-drop",
            "quantity": 1,
            "amount": 4900,
            "currency": "EUR",
            "expires_at": expires,
        } | {name: row[name] for name in ("status", "reason")}

    async def read(self, request: web.Request) -> web.Response:
        self.tick()
        id_ = request.match_info["id"]
        if id_ not in self.reservations:
            return problem(404, "reservation_not_found")
        if self.contradict and self.reservations[id_]["reason"] == "buyer_cancelled":
            self.contradict -= 1
            return web.json_response(self.view(id_) | {"status": "awaiting_payment"})
        return web.json_response(self.view(id_))

    async def cancel(self, request: web.Request) -> web.Response:
        row = self.reservations[request.match_info["id"]]
        row.update(status="cancelled", reason="buyer_cancelled")
        return web.json_response(self.view(request.match_info["id"]))

    async def pay(self, request: web.Request) -> web.Response:
        self.tick()
        assert request.headers["Dropgate-Signature"].startswith("t=")
        body = await request.json()
        if body["payment_id"] not in self.payments:
            row = self.reservations[body["reservation_id"]]
            applied = "applied" if row["status"] == "awaiting_payment" else "refund_required"
            if applied == "applied":
                row["status"] = "paid"
            self.refunds += applied != "applied"
            self.payments[body["payment_id"]] = applied
        return web.json_response({"applied": self.payments[body["payment_id"]]})

    async def ledger(self, request: web.Request) -> web.Response:
        self.tick()
        paid, waiting, queued = self.live("paid"), self.live("awaiting_payment"), self.live("queued")
        left = self.stock - paid - waiting
        sql = {
            "initial": self.stock,
            "adjusted": 0,
            "available": left,
            "awaiting_payment": waiting,
            "paid": paid,
            "refunded_kept": 0,
            "under_review": 0,
            "payments_succeeded": len(self.payments),
            "refunds": self.refunds,
        }
        segments = [{"segment": 0, "readable": True, "available": left - queued}]
        return web.json_response(
            {"sql": sql, "segments": segments, "balanced": True, "quiet": queued == 0, "problems": []}
        )

    async def sale(self, request: web.Request) -> web.Response:
        return web.json_response({"id": "demo-drop", "status": "open", "authority": "redis"})

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/sales/{sale}/reservations", self.reserve),
                web.get("/v1/reservations/{id}", self.read),
                web.post("/v1/reservations/{id}/cancel", self.cancel),
                web.post("/v1/payments", self.pay),
                web.post("/admin/v1/sales", self.sale),
                web.get("/admin/v1/sales/{id}", self.sale),
                web.post("/admin/v1/sales/{id}/{act}", self.sale),
                web.get("/admin/v1/sales/{id}/ledger", self.ledger),
                web.get("/readyz", self.sale),
            ]
        )
        return app


def problem(status: int, code: str, *, retry_after: str | None = None, **facts: object) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return web.json_response({"code": code} | facts, status=status, headers=headers)


@asynccontextmanager
async def serving(service: FakeService) -> AsyncIterator[str]:
    server = TestServer(service.app())
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()
