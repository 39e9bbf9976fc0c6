"""A sale of the bench: made, opened, audited against what its buyers were told, and ended before the next one."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.figures import Audit
from bench.load.requests import buyer
from bench.stand.child import BenchFailed
from bench.stand.dropgate import Stand

PREFIX = "bench-"
OURS = f"{PREFIX}{secrets.token_hex(3)}-"
"""How the sales of this run begin: those of another one, which may be under way, are not ours to end."""
PRICE = 4_900
LONG_S = 7_200
"""To pay: nothing expires under a later measurement. A delay level of RocketMQ's own list."""
QUIET_S = 120
"""Until nothing is under way after a measurement: what it left in the broker has become orders."""
ENDED_S = 30.0
"""Until a keeper has taken a settled sale out of Redis: a turn or two of it."""
LOOK_S = 0.2
EVENTS_A_TIME = 5_000
UNENDED = (
    "SELECT (SELECT COUNT(*) FROM sales WHERE id LIKE :ours AND status = 'settled' AND authority <> 'sql')"
    " + (SELECT COUNT(*) FROM sale_epochs WHERE sale_id LIKE :ours AND unlink_at_ms <= :now_ms)"
)
AWAITING_PAYMENT, PAID, CANCELLED = "awaiting_payment", "paid", "cancelled"
DEAD = frozenset({"rejected", CANCELLED})
"""Told "yours", and later that it is not: lost, however properly it was said."""


@dataclass(frozen=True, kw_only=True)
class BenchSale:
    """`ends_unpaid`: by its audit, the time to pay of each order is over."""

    stand: Stand
    id: str
    stock: int
    ends_unpaid: bool = False

    @classmethod
    async def opened(
        cls, engine: AsyncEngine, stand: Stand, stock: int, *, window_s: int | None = None, on_sql: bool = False
    ) -> BenchSale:
        """The only one: those of earlier measurements are ended first. With `window_s` nobody pays in time."""
        await end_sales(engine, stand)
        sale = cls(stand=stand, id=OURS + secrets.token_hex(4), stock=stock, ends_unpaid=window_s is not None)
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
        found = audit_of(self.stock, ledger, statuses, names, payers, ends_unpaid=self.ends_unpaid)
        return found, "; ".join(ledger["problems"])


def audit_of(
    stock: int,
    ledger: Mapping[str, Any],
    statuses: Mapping[str, str],
    told: Set[str],
    paid: Set[str] = frozenset(),
    *,
    ends_unpaid: bool = False,
) -> Audit:
    """`statuses`: of the sale's rows, by buyer. Lost is also a payment that was taken: its order must be paid, and by a
    payment in the books. In doubt is also an order that should have ended unpaid, and waits for its payment still."""
    sql = ledger["sql"]
    live = sql["awaiting_payment"] + sql["paid"] + sql["refunded_kept"] + sql["under_review"]
    queued = sum(segment.get("queued", 0) for segment in ledger["segments"])
    dead = DEAD - {CANCELLED} if ends_unpaid else DEAD
    without_order = {who for who in told if statuses.get(who, "rejected") in dead}
    overdue = sum(statuses.get(who) == AWAITING_PAYMENT for who in told) if ends_unpaid else 0
    without_payment = {who for who in paid if statuses.get(who) != PAID}
    unbooked = len(paid) - sql["payments_applied"] if paid else 0
    # What the product's own audit finds is in doubt at least once, whatever the sums say.
    in_doubt = max(queued, overdue, 1 if ledger["problems"] or not ledger["quiet"] else 0)
    return Audit(
        stock=stock,
        told=len(told),
        sold=live,
        oversold=max(0, live - stock),
        lost=max(len(without_order | without_payment), unbooked),
        in_doubt=in_doubt,
    )


async def end_sales(engine: AsyncEngine, stand: Stand) -> None:
    """Settle those of this run, and wait until they cost nothing any more: no turn of a keeper, no key in Redis, no
    event for a relay. BenchFailed: not within ENDED_S."""
    for id_ in await _open_sales(engine):
        await stand.command("sale", "close", id_)
        await stand.command("sale", "settle", id_)
    deadline_s = time.monotonic() + ENDED_S
    while left := await number(engine, UNENDED, now_ms=time.time_ns() // 1_000_000, ours=f"{OURS}%"):
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{left} settled sales are still in Redis after {ENDED_S:.0f} s: is the keeper running?")
        await asyncio.sleep(LOOK_S)
    await _forget_events(engine)


async def _open_sales(engine: AsyncEngine) -> list[str]:
    query = text("SELECT id FROM sales WHERE id LIKE :ours AND status IN ('open', 'closed')")
    async with engine.connect() as connection:
        return [_text(id_) for (id_,) in await connection.execute(query, {"ours": f"{OURS}%"})]


async def _forget_events(engine: AsyncEngine) -> None:
    """Most measurements have no relay: the next one that has would be busy for minutes with what they left, and what
    earlier runs did."""
    statement = text("UPDATE outbox SET sent = 1 WHERE sent = 0 AND sale_id LIKE :ours ORDER BY seq LIMIT :count")
    marked = EVENTS_A_TIME
    while marked == EVENTS_A_TIME:
        async with engine.begin() as connection:
            marked = (await connection.execute(statement, {"ours": f"{PREFIX}%", "count": EVENTS_A_TIME})).rowcount


async def number(engine: AsyncEngine, query: str, **values: object) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text(query), values)).scalar_one())


async def statuses_of(engine: AsyncEngine, sale_id: str) -> dict[str, str]:
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT buyer_id, status FROM orders WHERE sale_id = :id"), {"id": sale_id}
        )
        return {_text(who): _text(status) for who, status in rows}


async def orders_of(engine: AsyncEngine, sale_id: str) -> int:
    return await number(engine, "SELECT COUNT(*) FROM orders WHERE sale_id = :id", id=sale_id)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
