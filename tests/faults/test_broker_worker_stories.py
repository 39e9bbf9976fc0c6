"""Several processes sell through one broker, each with clients of its own; one is killed and replaced (F49).

What a fork does to a client is told in tests/unit/rocketmq/test_grpc_transport.py: it refuses, with a sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from service.domain.ids import ReservationId
from tests.fixtures.fleet import Fleet
from tests.fixtures.processes import Process
from tests.fixtures.shop import Shop, id_of
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_REAL_SERVERS
from tests.fixtures.stage import SALE, Stage, until
from tests.fixtures.victim import Seam

pytestmark = [pytest.mark.faults, pytest.mark.slow, ON_REAL_SERVERS]

BUYERS = 60


async def test_every_worker_sells_and_answers_and_so_does_the_one_that_replaces_another(
    stage: Stage, fleet: Fleet
) -> None:
    """F49. No sweep makes orders here: what is in doubt is answered by whoever is left."""
    stage.settings = stage.settings.model_copy(update={"sweep_after_s": 600.0})
    await stage.process("order", "keeper", registered=False)
    await stage.sale(rules(stock=100))
    workers = [fleet.api(f"worker-{number}", trap=Seam.DEDUCTED) for number in range(3)]
    shops = await fleet.start(*workers)
    await sold_by_all(stage, shops)

    await fleet.fall(workers[0], shops[0], "anna")
    await fleet.kill(workers[0])
    await answered_by(stage, "anna", workers[1:])

    replacement = fleet.api("worker-4")
    (at_replacement,) = await fleet.start(replacement)
    assert (await asyncio.to_thread(at_replacement.reserve, SALE, "bert")).status_code == 202
    await fleet.kill(workers[1])
    await fleet.fall(workers[2], shops[2], "carl")
    await fleet.kill(workers[2])
    await answered_by(stage, "carl", [replacement])
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == BUYERS + 3


async def sold_by_all(stage: Stage, shops: Sequence[Shop]) -> None:
    """In turn, and several at a time."""

    def buy(number: int) -> int:
        return shops[number % len(shops)].reserve(SALE, f"b-{number}").status_code

    codes = await asyncio.gather(*(asyncio.to_thread(buy, number) for number in range(BUYERS)))
    assert set(codes) == {202}
    for number in range(BUYERS):
        await stage.becomes(ReservationId(id_of(SALE, f"b-{number}")), "awaiting_payment")


async def answered_by(stage: Stage, buyer: str, workers: Sequence[Process]) -> None:
    await stage.becomes(ReservationId(id_of(SALE, buyer)), "awaiting_payment")

    async def says_so() -> bool:
        return any(it.said('"action": "check_answered"') for it in workers)

    await until(says_so, f"one of them has answered for {buyer}")
