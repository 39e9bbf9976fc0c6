"""What follows the COMMIT: whatever becomes of it, the orders are there and their messages are acked (decision 24)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from service.core.after_commit import AfterCommit, Made
from service.core.claims import BatchClaims
from service.core.directory import SaleDirectory
from service.core.release import Releases
from service.core.timeouts import PaymentTimeouts
from service.domain.errors import BrokerRefused, CannotStart, DropgateError, InvariantBroken, RowRefused
from service.domain.ids import BatchId
from service.domain.order import Decision, Order, Owed
from service.domain.sale import ServerIds
from service.domain.stock import Applied, Effect, Lost
from service.ports.orders import OrderStore
from service.ports.stock import Stock
from tests.fixtures.domain import a_claim, a_sale, an_order

OURS = [RowRefused("MySQL error 1146"), InvariantBroken("row"), BrokerRefused("broker"), CannotStart("a client", "no")]


class World:
    """Everything that is told, in one; `refusing` is the call that raises."""

    def __init__(self, error: DropgateError, refusing: str, *, lost: bool = False) -> None:
        self.error = error
        self.refusing = refusing
        self.lost = lost
        self.called: list[str] = []

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name == self.refusing:
            raise self.error

    async def confirm(self, *_: object) -> Applied | Lost:
        self._call("confirm")
        return Lost(found=ServerIds(run_id="r", replid="p")) if self.lost else Applied(changed=frozenset())

    async def end(self, *_: object) -> Applied:
        self._call("end")
        return Applied(changed=frozenset())

    async def report_lost(self, *_: object) -> None:
        self._call("report_lost")

    async def clear_owed(self, owed: Sequence[Owed]) -> None:
        self._call("clear_owed")

    async def try_schedule(self, orders: Sequence[Order]) -> None:
        self._call("try_schedule")

    def after_commit(self) -> AfterCommit:
        return AfterCommit(
            directory=cast(SaleDirectory, self),
            stock=cast(Stock, self),
            orders=cast(OrderStore, self),
            timeouts=cast(PaymentTimeouts, self),
        )


def _made() -> Made:
    batch = BatchClaims(sale=a_sale(), batch_id=BatchId("batch"), claims=(a_claim(),), older=False)
    return batch, Decision(accepted=(an_order(),), rejected=(), existing=(), owed=())


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("refusing", ["confirm", "clear_owed", "report_lost", "try_schedule"])
async def test_nothing_that_fails_after_the_commit_is_raised(error: DropgateError, refusing: str) -> None:
    """And the one does not end the other. Raised out of a group it was an ExceptionGroup, which ended the process."""
    world = World(error, refusing, lost=refusing == "report_lost")
    await world.after_commit().tell([_made()])
    assert {refusing, "try_schedule", "confirm"} <= set(world.called)


async def test_a_bug_after_the_commit_is_not_hidden() -> None:
    world = World(RowRefused("never raised"), "none")
    world.confirm = None  # type: ignore[assignment,method-assign]
    with pytest.raises(ExceptionGroup):
        await world.after_commit().tell([_made()])


@pytest.mark.parametrize("refusing", ["end", "clear_owed"])
async def test_an_ending_that_is_committed_is_not_refused_for_what_follows(refusing: str) -> None:
    world = World(RowRefused("MySQL error 1146"), refusing)
    releases = Releases(cast(SaleDirectory, world), cast(Stock, world), cast(OrderStore, world))
    order = an_order()
    owed = Owed(reservation_id=order.id, sale_id=order.sale_id, segment=0, epoch=3, effect=Effect.RETURN)
    await releases.try_apply([owed])
    assert refusing in world.called
