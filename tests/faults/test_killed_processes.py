"""kill -9 between any two steps of the protocol: nothing that a client was told is forgotten or contradicted (I5, I7).

Each story is told twice. Either the embedded Redis dies with the process, and the next one takes the road loss → sql →
loading → redis; or a Redis of its own lives on, and the next one goes on in the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.reservation import Status
from tests.fixtures.processes import eventually
from tests.fixtures.servers import RealServer
from tests.fixtures.shop import PRICE, Witness, id_of
from tests.fixtures.stories import kill_at_seam, reach, reserve_again, settled_down
from tests.fixtures.victim import Seam

pytestmark = [pytest.mark.faults, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(180)]

SALE = "drop"

Make = Callable[..., Any]


@pytest.fixture(params=["redis_dies_too", "redis_lives_on"])
def redis(request: pytest.FixtureRequest, make_server: Callable[..., RealServer]) -> dict[str, str]:
    """Settings that name it."""
    if request.param == "redis_dies_too":
        return {}
    return {"DROPGATE_REDIS_URL": make_server("valkey", "--appendonly", "yes").url}


@pytest.mark.parametrize(
    "seam",
    [
        Seam.HALF_SENT,
        Seam.DEDUCTED,
        Seam.ANSWERED,
        Seam.RECEIVED,
        Seam.ORDERED,
        Seam.CONFIRMED,
        Seam.TIMEOUT_UNSENT,
        Seam.EVENT_SENT,
    ],
)
def test_a_reserve_cut_off_by_kill_9_ends_in_one_order(
    seam: Seam, redis: dict[str, str], make_victim: Make, make_dev: Make
) -> None:
    victim, witness = make_victim(seam, **redis), Witness()
    shop = victim.start()
    shop.start_sale(SALE, stock=3)
    witness.hear(shop.reserve(SALE, "anna"))
    reach(shop, witness, Status.AWAITING_PAYMENT)

    kill_at_seam(victim, lambda: witness.hear(shop.reserve(SALE, "bert")))

    shop = make_dev(**redis).start()
    witness.ask(shop)
    reserve_again(shop, witness, "bert", SALE)
    reach(shop, witness, Status.AWAITING_PAYMENT)
    ledger = settled_down(shop, SALE)
    assert (ledger["sql"]["awaiting_payment"], ledger["sql"]["available"]) == (2, 1)


def test_a_buyer_who_never_comes_back_leaves_nothing_in_doubt(
    redis: dict[str, str], make_victim: Make, make_dev: Make
) -> None:
    """Nobody repeats the request: the check-back alone brings it to its end (F01, F06: and no traffic wakes it)."""
    victim = make_victim(Seam.DEDUCTED, **redis)
    shop = victim.start()
    shop.start_sale(SALE, stock=1)

    kill_at_seam(victim, lambda: shop.reserve(SALE, "bert"))

    shop = make_dev(**redis).start()
    eventually(lambda: shop.status(id_of(SALE, "bert")) == Status.AWAITING_PAYMENT, "its order is there")
    assert settled_down(shop, SALE)["sql"]["available"] == 0


@pytest.mark.parametrize("seam", [Seam.RELEASE_OWED, Seam.RELEASED])
def test_a_cancel_cut_off_by_kill_9_gives_the_unit_back_once(
    seam: Seam, redis: dict[str, str], make_victim: Make, make_dev: Make
) -> None:
    victim, witness = make_victim(seam, **redis), Witness()
    shop = victim.start()
    shop.start_sale(SALE, stock=1)
    anna = witness.hear(shop.reserve(SALE, "anna")).json()["id"]
    reach(shop, witness, Status.AWAITING_PAYMENT)

    kill_at_seam(victim, lambda: witness.hear(shop.cancel(anna)))

    shop = make_dev(**redis).start()
    reach(shop, witness, Status.CANCELLED)
    assert settled_down(shop, SALE)["sql"]["available"] == 1
    reserve_again(shop, witness, "bert", SALE)
    late = shop.pay(anna, "pay-late", amount=PRICE)
    assert late.json() == {"applied": "refund_required"}
    eventually(lambda: shop.status(id_of(SALE, "bert")) == Status.AWAITING_PAYMENT, "the unit sells again")
    assert settled_down(shop, SALE)["sql"]["available"] == 0


@pytest.mark.parametrize("seam", [Seam.RELEASE_OWED, Seam.RELEASED])
def test_a_time_out_cut_off_by_kill_9_gives_the_unit_back_once(
    seam: Seam, redis: dict[str, str], make_victim: Make, make_dev: Make
) -> None:
    victim, witness = make_victim(seam, **redis), Witness()
    shop = victim.start()
    shop.start_sale(SALE, stock=1, payment_window_s=1)
    victim.arm()
    witness.hear(shop.reserve(SALE, "anna"))
    victim.wait_at_seam()
    victim.kill()

    shop = make_dev(**redis).start()
    reach(shop, witness, Status.CANCELLED)
    assert shop.get(id_of(SALE, "anna")).json()["reason"] == "payment_timeout"
    assert settled_down(shop, SALE)["sql"]["available"] == 1


def test_an_order_whose_delay_message_was_never_sent_expires_all_the_same(
    redis: dict[str, str], make_victim: Make, make_dev: Make
) -> None:
    """F21 (c)."""
    victim, witness = make_victim(Seam.TIMEOUT_UNSENT, **redis), Witness()
    shop = victim.start()
    shop.start_sale(SALE, stock=1, payment_window_s=2)

    kill_at_seam(victim, lambda: witness.hear(shop.reserve(SALE, "anna")))

    shop = make_dev(**redis).start()
    eventually(lambda: shop.status(id_of(SALE, "anna")) == Status.CANCELLED, "the sweep has cancelled it")
    assert settled_down(shop, SALE)["sql"]["available"] == 1


def test_a_loader_killed_before_the_stamp_leaves_nothing_that_sells(
    redis: dict[str, str], make_victim: Make, make_dev: Make
) -> None:
    """Every attempt is a new epoch: the half-loaded slot of the first one is nobody's."""
    victim, witness = make_victim(Seam.LOADED, **redis), Witness()
    shop = victim.start()
    shop.create_sale(SALE, stock=2)
    kill_at_seam(victim, lambda: shop.open_sale(SALE))

    shop = make_dev(**redis).start()
    shop.open_sale(SALE)
    assert shop.sale(SALE)["epoch"] > 2, "the first attempt was epoch 2"
    reserve_again(shop, witness, "anna", SALE)
    reach(shop, witness, Status.AWAITING_PAYMENT)
    assert settled_down(shop, SALE)["segments"][0]["granted"] == 2
