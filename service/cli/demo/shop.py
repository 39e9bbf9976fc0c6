"""The demo's HTTP client: the calls that a storefront, its payment side and an operator make."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from service.cli.demo.figures import MS, Figures
from service.cli.demo.plan import CURRENCY, PRICE, SALE, Buyer, backoff_s
from service.cli.dev import DevKeys
from service.domain.ids import BuyerId, SaleId, reservation_id

CONNECTIONS = 96
"""One for each of the rush's workers and of the tills' clerks: neither waits for the other."""
REQUEST_TIMEOUT_S = 15.0
MAX_ATTEMPTS = 20
NOT_AN_ANSWER = frozenset({0, 429, 500, 502, 503, 504})
"""What is asked again with the same key; 0: no reply at all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply: HTTP status, JSON body, and how long it took."""

    status: int
    body: dict[str, Any]
    retry_after_s: float | None
    replayed: bool
    ms: float

    @property
    def code(self) -> str:
        return str(self.body.get("code", self.status))

    @property
    def is_reservation(self) -> bool:
        return self.status in {200, 202} and "status" in self.body and "id" in self.body


class Shop:
    """Speaks to one Dropgate over bounded, kept-alive connections."""

    def __init__(self, session: aiohttp.ClientSession, url: str, keys: DevKeys, figures: Figures) -> None:
        self._session = session
        self._url = url
        self._keys = keys
        self.figures = figures
        self._storefront = {"Authorization": f"Bearer {keys.storefront.key}", "Content-Type": "application/json"}
        self._operator = {"Authorization": f"Bearer {keys.operator.key}", "Content-Type": "application/json"}

    async def reserve(self, buyer: Buyer) -> Answer:
        """Until there is an answer, with the same key each time."""
        headers = {**self._storefront, "Idempotency-Key": buyer.key}
        body = json.dumps({"buyer_id": buyer.id, "quantity": 1}).encode()
        return await self._insist(lambda: self._call("POST", f"/v1/sales/{SALE}/reservations", headers, body))

    async def reservation(self, id_: str) -> Answer:
        return await self._insist(lambda: self._call("GET", f"/v1/reservations/{id_}", self._storefront))

    async def cancel(self, id_: str) -> Answer:
        body = json.dumps({"reason": "buyer_cancelled"}).encode()
        return await self._insist(lambda: self._call("POST", f"/v1/reservations/{id_}/cancel", self._storefront, body))

    async def pay(self, id_: str, payment_id: str) -> Answer:
        """The payment side's signed report."""
        report = {
            "payment_id": payment_id,
            "reservation_id": id_,
            "status": "succeeded",
            "amount": PRICE,
            "currency": CURRENCY,
        }
        body = json.dumps(report).encode()

        def call() -> Awaitable[Answer]:
            headers = {
                "Authorization": f"Bearer {self._keys.payments.key}",
                "Content-Type": "application/json",
                "Dropgate-Signature": signature(self._keys.payment_secret, int(time.time()), body),
            }
            return self._call("POST", "/v1/payments", headers, body)

        return await self._insist(call)

    async def operate(self, method: str, path: str, value: object = None) -> dict[str, Any]:
        """An operator's call that must succeed."""
        body = None if value is None else json.dumps(value).encode()
        answer = await self._insist(lambda: self._call(method, f"/admin/v1/{path}", self._operator, body))
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own line
            raise DemoFailed(f"{method} /admin/v1/{path} was answered {answer.status}: {answer.body}")
        return answer.body

    async def ready(self) -> Answer:
        return await self._call("GET", "/readyz", {})

    async def _insist(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        answer = await call()
        for attempt in range(MAX_ATTEMPTS):
            if answer.status not in NOT_AN_ANSWER:
                break
            self.figures.retries[f"{answer.status} {answer.code}"] += 1
            await asyncio.sleep(backoff_s(attempt, answer.retry_after_s, random.random()))  # noqa: S311 - jitter
            answer = await call()
        return answer

    async def _call(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> Answer:
        started = time.perf_counter()
        self.figures.requests += 1
        try:
            async with self._session.request(method, self._url + path, headers=headers, data=body) as reply:
                raw = await reply.read()
                return Answer(
                    status=reply.status,
                    body=_json_object(raw),
                    retry_after_s=_seconds(reply.headers.get("Retry-After")),
                    replayed=reply.headers.get("Idempotent-Replayed") == "true",
                    ms=(time.perf_counter() - started) * MS,
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            lost = {"code": f"no reply ({type(error).__name__})"}
            return Answer(status=0, body=lost, retry_after_s=None, replayed=False, ms=0.0)


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


def id_of(buyer: Buyer) -> str:
    """The reservation id of the buyer's key: derived, so known even if no answer ever came."""
    return reservation_id(SaleId(SALE), BuyerId(buyer.id), buyer.key)


def signature(secret: str, at_s: int, body: bytes) -> str:
    """The value of Dropgate-Signature for this body."""
    mac = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={mac}"


@asynccontextmanager
async def shop(url: str, keys: DevKeys, figures: Figures) -> AsyncIterator[Shop]:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=30)
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        yield Shop(session, url, keys, figures)


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        return {"code": "not_json"}
    return found if isinstance(found, dict) else {"value": found}


def _seconds(retry_after: str | None) -> float | None:
    try:
        return None if retry_after is None else min(10.0, max(0.0, float(retry_after)))
    except ValueError:
        return None
