"""Delay messages of several sales in one receive: one sale that is stuck holds up no other, and all has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.core import expiry as expiry_module
from service.core.ending import EndingService
from service.core.expiry import SALES_AT_ONCE, PaymentExpiry
from service.domain.batch import SCHEMA, PaymentTimeoutMessage, encode
from service.domain.ids import ReservationId, SaleId
from service.domain.order import Order
from service.ports.messaging import Dead, Delivery, Done, RetryAfter
from service.ports.orders import OrderStore
from tests.fixtures.domain import an_order


class Rows:
    """Orders that are due; those of the sale `stuck` are never cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.at_once = self.most_at_once = 0

    async def orders(self, ids: Sequence[ReservationId]) -> dict[ReservationId, Order]:
        return {id_: replace(an_order(id_=id_, expires_at_ms=0), sale_id=SaleId(id_.partition(".")[0])) for id_ in ids}

    async def cancel_expired(self, orders: Sequence[Order]) -> int:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await (asyncio.Event().wait() if orders[0].sale_id == "stuck" else asyncio.sleep(0))
        finally:
            self.at_once -= 1
        self.cancelled += [order.id for order in orders]
        return len(orders)

    def expiry(self) -> PaymentExpiry:
        return PaymentExpiry(cast(OrderStore, self), cast(EndingService, self), ManualClock())


def _delivery(sale: str, number: int) -> Delivery:
    ids = (ReservationId(f"{sale}.{number}"),)
    body = encode(PaymentTimeoutMessage(schema=SCHEMA, sale_id=SaleId(sale), reservation_ids=ids, expires_at_ms=0))
    return Delivery(topic="t", message_id=ids[0], key="k", body=body, attempt=1, born_at_ms=0, receipt=None)


async def test_a_sale_that_is_stuck_holds_up_no_other_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry_module, "PROCESS_S", 0.2)
    rows = Rows()
    deliveries = [_delivery("stuck", n) for n in range(8)] + [_delivery("healthy", n) for n in range(8)]
    async with asyncio.timeout(5):
        outcomes = {delivery.message_id: outcome for delivery, outcome in await rows.expiry().process(deliveries)}
    assert len(outcomes) == 16
    assert all(isinstance(outcomes[f"healthy.{n}"], Done) for n in range(8))
    assert all(isinstance(outcomes[f"stuck.{n}"], RetryAfter) for n in range(8))


async def test_sales_go_side_by_side_with_a_bound_and_what_is_unreadable_is_dead() -> None:
    rows = Rows()
    unreadable = replace(_delivery("any", 0), message_id="unreadable", body=b"{")
    settled = await rows.expiry().process([unreadable, *[_delivery(f"sale-{n}", 0) for n in range(15)]])
    assert rows.most_at_once == SALES_AT_ONCE
    assert len(rows.cancelled) == 15
    assert [delivery.message_id for delivery, outcome in settled if isinstance(outcome, Dead)] == ["unreadable"]
