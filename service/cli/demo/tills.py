"""After the rush, each winner does as planned: pays, cancels, forgets, or pays too late."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from service.cli.demo.figures import Figures
from service.cli.demo.plan import Buyer, Charge, Deed
from service.cli.demo.shop import NOT_AN_ANSWER, Answer, id_of
from service.cli.demo.witness import Witness
from service.domain.reservation import FINAL, Status

CLERKS = 64
FIRST_LOOK_S, LONGEST_LOOK_S = 0.25, 2.0
"""As docs/integrate.md tells a storefront to poll; an order takes a moment, so the first look waits too."""
PATIENCE_S = 60.0
"""How long a winner waits for what must come. Who waited in vain is forgotten: the demo fails."""

ENDED = FINAL | {Status.PAID}


class Sells(Protocol):
    """What the tills need of the shop."""

    def reservation(self, id_: str) -> Awaitable[Answer]: ...

    def cancel(self, id_: str) -> Awaitable[Answer]: ...

    def pay(self, id_: str, payment_id: str) -> Awaitable[Answer]: ...


@dataclass(slots=True)
class Tills:
    """Winners queue here. Those who let their order lapse wait in `later` and do not keep a clerk."""

    shop: Sells
    witness: Witness
    figures: Figures
    queue: asyncio.Queue[Buyer] = field(default_factory=asyncio.Queue)
    later: list[tuple[float, Buyer]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    served: int = 0
    lapsing: int = 0
    """Forgotten orders whose end was not seen yet."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why reservations ended, each counted once."""
    _ended: set[str] = field(default_factory=set)

    async def won(self, buyer: Buyer) -> None:
        await self.queue.put(buyer)

    async def clerk(self) -> None:
        """Serve winners until cancelled; `queue.join` says when all were served."""
        while True:
            buyer = await self.queue.get()
            try:
                await self.serve(buyer)
                self.served += 1
            finally:
                self.queue.task_done()

    async def serve(self, buyer: Buyer) -> None:
        id_ = id_of(buyer)
        if buyer.deed is Deed.CANCEL:
            await self._cancel(id_)
            return
        await asyncio.sleep(FIRST_LOOK_S)
        body = await self._wait_for(id_, ENDED | {Status.AWAITING_PAYMENT})
        if body is None or body["status"] != Status.AWAITING_PAYMENT:
            return
        if buyer.deed is Deed.PAY:
            await self._pay(buyer)
        else:
            self.later.append((_unix_s(body.get("expires_at")), buyer))

    async def serve_late(self) -> None:
        """See every forgotten order end, the earliest first."""
        waiting, self.later = sorted(self.later, key=lambda entry: entry[0]), []
        self.lapsing = len(waiting)
        line = iter(waiting)

        async def clerk() -> None:
            for due_s, buyer in line:
                await asyncio.sleep(max(0.0, due_s + FIRST_LOOK_S - time.time()))
                await self._lapse(buyer)
                self.lapsing -= 1

        async with asyncio.TaskGroup() as clerks:
            for _ in range(CLERKS):
                clerks.create_task(clerk())

    async def settle(self, buyer: Buyer) -> None:
        """Who never got an answer asks what became of the request; a reservation is served like any other."""
        answer = await self.shop.reservation(id_of(buyer))
        if answer.is_reservation:
            self.figures.accepted += 1
            await self._see(answer)
            await self.won(buyer)
        elif answer.status == 404:  # noqa: PLR2004 - HTTP's own number
            self.witness.unknown(id_of(buyer))
            self.figures.refused += 1
        else:
            self.figures.in_doubt += 1

    async def _lapse(self, buyer: Buyer) -> None:
        id_ = id_of(buyer)
        body = await self._wait_for(id_, ENDED)
        if body is not None and buyer.deed is Deed.PAY_LATE:
            answer = await self.shop.pay(id_, f"pay-{buyer.number:06}-late")
            self.figures.paid_late += 1
            self._count_refund(answer)
            await self._see(await self.shop.reservation(id_))

    async def _pay(self, buyer: Buyer) -> None:
        id_, payment = id_of(buyer), f"pay-{buyer.number:06}"
        self._count_refund(await self.shop.pay(id_, payment))
        if buyer.charge is Charge.REPORTED_TWICE:
            await self.shop.pay(id_, payment)
        elif buyer.charge is Charge.CHARGED_TWICE:
            self._count_refund(await self.shop.pay(id_, f"{payment}-again"))
        await self._wait_for(id_, ENDED)

    async def _cancel(self, id_: str) -> None:
        answer = await self.shop.cancel(id_)
        if answer.is_reservation:
            await self._see(answer)
        await self._wait_for(id_, ENDED)

    async def _wait_for(self, id_: str, wanted: frozenset[Status]) -> dict[str, Any] | None:
        """Poll, ever more slowly, until it is in one of these states; None: it never was."""
        pause, deadline = FIRST_LOOK_S, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = await self.shop.reservation(id_)
            status = await self._see(answer)
            if status in wanted:
                return answer.body
            await asyncio.sleep(pause)
            pause = min(LONGEST_LOOK_S, pause * 1.6)
        self.forgotten.append(id_)
        return None

    async def _see(self, answer: Answer) -> Status | None:
        if answer.is_reservation:
            status = self.witness.reservation(answer.body)
            if status in FINAL:
                self._count_end(answer.body)
            return status
        if answer.status not in NOT_AN_ANSWER:
            self.figures.surprise(f"{answer.status} {answer.code} of a reservation")
        return None

    def _count_end(self, body: dict[str, Any]) -> None:
        if body["id"] not in self._ended:
            self._ended.add(body["id"])
            self.reasons[str(body.get("reason"))] += 1

    def _count_refund(self, answer: Answer) -> None:
        if answer.status != 200:  # noqa: PLR2004 - HTTP's own number
            self.figures.surprise(f"{answer.status} {answer.code} to a payment")
        elif answer.body.get("applied") == "refund_required":
            self.figures.refunds += 1


def _unix_s(expires_at: object) -> float:
    return datetime.fromisoformat(expires_at).timestamp() if isinstance(expires_at, str) else time.time()
