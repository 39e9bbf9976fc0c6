"""The bytes of a request. All but what the buyer's number decides is made once."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Protocol

import msgspec

from bench.load.spec import LoadSpec, Pay
from service.domain.ids import BuyerId, SaleId, reservation_id

NUMBER_WIDTH = 9


def buyer(number: int) -> str:
    return f"buyer-{number:0{NUMBER_WIDTH}d}"


def idempotency_key(number: int) -> str:
    return f"bench-{number:0{NUMBER_WIDTH}d}"


def greeting(spec: LoadSpec) -> bytes:
    """It costs a server nothing; one that does not know the path says so, which will do."""
    return f"GET /healthz HTTP/1.1\r\nHost: {spec.host}:{spec.port}\r\n\r\n".encode()


class ReserveBytes:
    """One buyer, one unit, one key."""

    def __init__(self, spec: LoadSpec) -> None:
        body = b'{"buyer_id":"%s","quantity":1}'
        length = len(body) - 2 + len(buyer(0))
        lines = [
            f"POST {spec.path} HTTP/1.1",
            f"Host: {spec.host}:{spec.port}",
            f"Authorization: Bearer {spec.bearer}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
            "Idempotency-Key: ",
        ]
        self._head = "\r\n".join(lines).encode()
        self._body = b"\r\n\r\n" + body

    def of(self, number: int) -> bytes:
        return self._head + idempotency_key(number).encode() + self._body % buyer(number).encode()


class RequestBytes(Protocol):
    def of(self, number: int) -> bytes: ...


class PayBytes:
    """A payment that succeeded, one a buyer."""

    def __init__(self, spec: LoadSpec, pay: Pay) -> None:
        self._pay = pay
        lines = [f"POST {spec.path} HTTP/1.1", f"Host: {spec.host}:{spec.port}", "Content-Type: application/json"]
        self._head = "\r\n".join(lines).encode()

    def of(self, number: int) -> bytes:
        pay, now = self._pay, str(int(time.time()))
        id_ = reservation_id(SaleId(pay.sale), BuyerId(buyer(number)), idempotency_key(number))
        body = msgspec.json.encode(
            {
                "payment_id": f"{pay.sale}-{number}",
                "reservation_id": id_,
                "status": "succeeded",
                "amount": pay.amount,
                "currency": pay.currency,
            }
        )
        signature = hmac.new(pay.secret.encode(), now.encode() + b"." + body, hashlib.sha256).hexdigest()
        tail = f"\r\nDropgate-Signature: t={now},v1={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        return self._head + tail.encode() + body


def bytes_for(spec: LoadSpec) -> RequestBytes:
    return ReserveBytes(spec) if spec.pay is None else PayBytes(spec, spec.pay)
