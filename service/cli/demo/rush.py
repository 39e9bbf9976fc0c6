"""The rush: a bounded crowd of workers sends every buyer's request and sorts the buyers by what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from service.cli.demo.figures import Figures
from service.cli.demo.plan import Buyer
from service.cli.demo.shop import NOT_AN_ANSWER, Answer, id_of
from service.cli.demo.witness import Witness
from service.domain.reservation import FINAL, Status

WORKERS = 32
"""Fewer than clerks: those who won are served before their window ends, also where the machine is busy."""
SELLS_NO_MORE = frozenset({"sold_out", "limit_reached"})


class Reserves(Protocol):
    """What the rush needs of the shop."""

    async def reserve(self, buyer: Buyer) -> Answer: ...


Won = Callable[[Buyer], Awaitable[None]]


def _heard(answer: Answer) -> str:
    """Of a request that was sent again: in words, for the result."""
    if answer.replayed:
        return "got their reservation again"
    if answer.is_reservation:
        return "won this time"
    return "heard sold out again" if answer.code in SELLS_NO_MORE else "heard nothing"


@dataclass(slots=True)
class Rush:
    """One wave. `losers` may try again; `undecided` never got an answer."""

    shop: Reserves
    witness: Witness
    figures: Figures
    won: Won
    losers: list[int] = field(default_factory=list)
    undecided: list[Buyer] = field(default_factory=list)
    done: int = 0

    async def run(self, buyers: Iterator[Buyer], workers: int = WORKERS) -> None:
        """Everyone has an answer, or is in `undecided`, when this returns. Memory is bounded by the workers."""
        async with asyncio.TaskGroup() as crowd:
            for _ in range(workers):
                crowd.create_task(self._work(buyers))

    async def _work(self, buyers: Iterator[Buyer]) -> None:
        for buyer in buyers:
            answers = [await self.shop.reserve(buyer)]
            if buyer.asks_again and answers[0].status not in NOT_AN_ANSWER:
                answers.append(await self.shop.reserve(buyer))
                self.figures.told_again[_heard(answers[1])] += 1
                self.figures.replayed += answers[1].replayed
            await self._sort(buyer, answers)
            self.done += 1

    async def _sort(self, buyer: Buyer, answers: list[Answer]) -> None:
        """A repeated request may win where the first one lost: "sold out" binds no key."""
        told = [self._listen(buyer, answer) for answer in answers]
        status = next((status for status in reversed(told) if status is not None), None)
        if status is not None and status not in FINAL:
            self.figures.accepted += 1
            self.figures.accept_ms.append(next(answer.ms for answer in answers if answer.is_reservation))
            await self.won(buyer)
        elif status is not None:
            self.figures.refused += 1
        elif any(answer.code in SELLS_NO_MORE for answer in answers):
            self.figures.refused += 1
            self.losers.append(buyer.number)
        elif answers[-1].status in NOT_AN_ANSWER:
            self.undecided.append(buyer)

    def _listen(self, buyer: Buyer, answer: Answer) -> Status | None:
        if answer.is_reservation:
            return self.witness.reservation(answer.body)
        if answer.code in SELLS_NO_MORE:
            self.witness.refused(id_of(buyer), answer.code, final=bool(answer.body.get("final")))
        elif answer.status not in NOT_AN_ANSWER:
            self.figures.surprise(f"{answer.status} {answer.code}")
        return None
