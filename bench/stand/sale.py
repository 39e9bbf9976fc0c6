"""A sale of the bench: made, opened, and audited against what its buyers were told."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.figures import Audit
from bench.load.requests import buyer
from bench.stand.dropgate import Stand

PREFIX = "bench-"
PRICE = 4_900
LONG_S = 7_200
"""To pay: nothing expires under a later measurement. A delay level of RocketMQ's own list."""
QUIET_S = 120
"""Until nothing is under way after a measurement: what it left in the broker has become orders."""
PAID = "paid"
DEAD = frozenset({"rejected", "cancelled"})
"""Told "yours", and later that it is not: lost, however properly it was said."""


@dataclass(frozen=True, kw_only=True)
class BenchSale:
    stand: Stand
    id: str
    stock: int

    @classmethod
    async def opened(cls, stand: Stand, stock: int, *, window_s: int | None = None, on_sql: bool = False) -> BenchSale:
        sale = cls(stand=stand, id=PREFIX + secrets.token_hex(6), stock=stock)
        rules = ["--sku", "bench", "--stock", str(stock), "--price", str(PRICE)]
        rules += ["--payment-window", str(LONG_S if window_s is None else window_s)]
        rules += ["--on-sql"] if on_sql else []
        await stand.command("sale", "create", sale.id, *rules)
        await stand.command("sale", "open", sale.id, "--warm")
        return sale

    @property
    def path(self) -> str:
        return f"/v1/sales/{self.id}/reservations"

    async def audited(self, engine: AsyncEngine, told: Iterable[int], paid: Iterable[int] = ()) -> tuple[Audit, str]:
        """Once all is quiet, or QUIET_S are over; and what the audit of the product itself says is wrong. `paid`: who
        was told that the payment is applied."""
        report = await self.stand.asked("audit", "--sale", self.id, "--wait", str(QUIET_S), timeout_s=QUIET_S + 60)
        (ledger,) = report["sales"]
        statuses = await statuses_of(engine, self.id)
        names, payers = {buyer(number) for number in told}, {buyer(number) for number in paid}
        return audit_of(self.stock, ledger, statuses, names, payers), "; ".join(ledger["problems"])


def audit_of(
    stock: int, ledger: Mapping[str, Any], statuses: Mapping[str, str], told: set[str], paid: Set[str] = frozenset()
) -> Audit:
    """`statuses`: of the sale's rows, by buyer. Lost is also a payment that was taken: its order must be paid, and by a
    payment in the books."""
    sql = ledger["sql"]
    live = sql["awaiting_payment"] + sql["paid"] + sql["refunded_kept"] + sql["under_review"]
    queued = sum(segment.get("queued", 0) for segment in ledger["segments"])
    without_order = {who for who in told if statuses.get(who, "rejected") in DEAD}
    without_payment = {who for who in paid if statuses.get(who) != PAID}
    unbooked = len(paid) - sql["payments_applied"] if paid else 0
    # What the product's own audit finds is in doubt at least once, whatever the sums say.
    in_doubt = max(queued, 1 if ledger["problems"] or not ledger["quiet"] else 0)
    return Audit(
        stock=stock,
        told=len(told),
        sold=live,
        oversold=max(0, live - stock),
        lost=max(len(without_order | without_payment), unbooked),
        in_doubt=in_doubt,
    )


async def statuses_of(engine: AsyncEngine, sale_id: str) -> dict[str, str]:
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT buyer_id, status FROM orders WHERE sale_id = :id"), {"id": sale_id}
        )
        return {_text(who): _text(status) for who, status in rows}


async def orders_of(engine: AsyncEngine, sale_id: str) -> int:
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT COUNT(*) FROM orders WHERE sale_id = :id"), {"id": sale_id})
        return int(found.scalar_one())


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
