"""One sale's row is held at a real MariaDB: the order transaction of a receive makes the orders of all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.sql.database import DatabaseOptions
from service.core.after_commit import AfterCommit, Made
from service.core.claims import BatchClaims, ClaimsFinder
from service.core.directory import SaleDirectory
from service.core.order_intake import OrderIntake
from service.core.order_transaction import OrderTransaction
from service.domain.ids import BatchId, SaleId
from service.ports.orders import SaleTransaction
from tests.fixtures.sql import NOW, SALE, Stores, claim, id_of, rules, stores_on

pytestmark = pytest.mark.faults

OTHER = SaleId("sneaker-02")


@pytest.fixture
async def hasty(mysql_url: str, mysql: Stores) -> AsyncIterator[Stores]:
    for sale_id in (SALE, OTHER):
        await mysql.sales.create(sale_id, rules(stock=100), NOW)
    opened = stores_on(mysql_url, DatabaseOptions(transaction_timeout_s=1))
    yield opened
    await opened.database.close()


class NobodyIsTold:
    async def tell(self, made: Sequence[Made]) -> None: ...


async def test_the_orders_of_other_sales_are_made_while_one_sale_s_row_is_held(mysql: Stores, hasty: Stores) -> None:
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(_: SaleTransaction) -> None:
        held.set()
        await release.wait()

    clock = ManualClock()
    intake = OrderIntake(
        directory=SaleDirectory(hasty.sales, clock),
        claims=cast(ClaimsFinder, None),
        transaction=OrderTransaction(hasty.orders, clock),
        after_commit=cast(AfterCommit, NobodyIsTold()),
        clock=clock,
    )
    both = [await _batch(mysql, SALE), await _batch(mysql, OTHER)]
    holding = asyncio.create_task(mysql.orders.transact([SALE], hold))
    await held.wait()
    assert (await intake.decide_stored(both)).ended() == {f"of-{OTHER}"}
    release.set()
    await holding
    assert (await intake.decide_stored(both)).ended() == {f"of-{SALE}", f"of-{OTHER}"}
    assert await mysql.orders.order(id_of("anna")) is not None


async def _batch(stores: Stores, sale_id: SaleId) -> BatchClaims:
    sale = await stores.sales.sale(sale_id)
    assert sale is not None
    its = (claim("anna", sale_id=sale_id),)
    return BatchClaims(sale=sale, batch_id=BatchId(f"of-{sale_id}"), claims=its, older=False)
