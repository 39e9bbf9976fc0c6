"""Check-backs as RocketMQ comes: after 6 s, then every 30 s. Other stories have a broker that asks each second."""

from __future__ import annotations

import time

import pytest

from consumers import order
from service.domain.ids import ReservationId
from tests.fixtures.fleet import Fleet
from tests.fixtures.shop import id_of
from tests.fixtures.stacks import Servers, on_real_servers
from tests.fixtures.stage import SALE, Stage, until
from tests.fixtures.victim import Seam
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import DEFAULT, RocketMQ

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.rocketmq, pytest.mark.timeout(240)]

FIRST_QUESTION_S = (DEFAULT.transaction_timeout_ms + DEFAULT.transaction_check_interval_ms) / 1000
PATIENCE_S = 10.0
SWEEP_AFTER_S = 300.0
"""Nobody but the check-back makes an order before."""


@pytest.fixture
def servers(rocketmq: RocketMQ, mariadb: MariaDB, redis7: Redis, migrated_mysql: str) -> Servers:
    return on_real_servers(rocketmq, mariadb, redis7, migrated_mysql)


async def test_another_process_answers_for_one_that_was_killed(
    stage: Stage, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F06. Two are in doubt: of a scan's questions one goes to the process that is dead, as the proxy notices by it,
    and is lost; the other is answered. The next scan would be 30 s later, and the keeper does not wait for it."""
    monkeypatch.setattr(order, "INVISIBLE_S", 10.0)  # the least that the proxy takes by its own settings
    stage.settings = stage.settings.model_copy(update={"sweep_after_s": SWEEP_AFTER_S})
    await stage.process("order", "keeper")
    await stage.sale()
    victim = fleet.api("victim", trap=Seam.DEDUCTED)
    (shop,) = await fleet.start(victim)
    for buyer in ("anna", "bert"):
        await fleet.fall(victim, shop, buyer)
    await until(lambda: are_in_doubt(stage, 2), "both are deducted, and not committed")
    await fleet.kill(victim)
    sent_s = time.monotonic()
    ids = [ReservationId(id_of(SALE, buyer)) for buyer in ("anna", "bert")]
    await until(lambda: has_order(stage, ids), "one has its order", FIRST_QUESTION_S + PATIENCE_S)
    print(f"the first order is there {time.monotonic() - sent_s:.1f} s after its half message")
    await stage.jump(SWEEP_AFTER_S)
    for id_ in ids:
        await stage.becomes(id_, "awaiting_payment")
    await stage.quiet(halves_left=1)
    assert (await stage.ledger()).sql.awaiting_payment == 2


async def are_in_doubt(stage: Stage, batches: int) -> bool:
    return len(await stage.undelivered()) == batches


async def has_order(stage: Stage, ids: list[ReservationId]) -> bool:
    return bool(await stage.orders(ids))
