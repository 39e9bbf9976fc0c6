"""Kills while buyers come: of each server under a fleet, of everything at once, of each process in turn; and SIGTERM.

What buyers were told holds, the books balance, and selling goes on by itself.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import httpx
import pytest

from service.bootstrap import Part
from service.domain.reservation import Status
from tests.fixtures.processes import command, eventually
from tests.fixtures.rush import CUT_OFF, UNANSWERED, Rush, buyers, until
from tests.fixtures.shop import Witness, id_of
from tests.fixtures.stories import kill_at_seam, reach, settled_down
from tests.fixtures.victim import Seam
from tests.fixtures.whole_fleet import TWINS, PartProcess, WholeFleet
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import RocketMQ

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

SELLS_WITHIN_S = 60.0
"""After a server is back: 6 s that an older epoch's messages have, or 12 s until the broker's clients are new; the rest
is a busy machine's."""
GRACE_S = 10.0
"""What a process has to stop."""


def test_everything_is_killed_at_once_and_goes_on_without_traffic(whole_fleet: WholeFleet) -> None:
    """F06, F58. Processes that have sent nothing yet are asked, and what the dead ones held is delivered."""
    fleet, witness = whole_fleet, Witness()
    (api,) = fleet.start_victims(Part.API, Seam.DEDUCTED)
    (consumer,) = fleet.start_victims(Part.ORDER, Seam.RECEIVED)
    sale = fleet.start_sale(stock=400)
    consumer.arm()
    fleet.sell_until(consumer.is_at_seam, sale, witness)
    kill_at_seam(api, lambda: fleet.shop_at(api).reserve(sale, "anna"))
    for process in (consumer, *fleet.all_twins()):
        process.send(signal.SIGKILL)
    for process in (consumer, *fleet.all_twins()):
        process.wait()

    fleet.start()
    anna = id_of(sale, "anna")
    eventually(lambda: fleet.shop.shows(anna, Status.AWAITING_PAYMENT), "the check-back alone has made her order")
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    assert settled_down(fleet.shop, sale)["sql"]["awaiting_payment"] == len(witness.told) + 1


# --- servers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Server:
    kill: Callable[[], None]
    start: Callable[[], None]


@pytest.fixture(params=["redis", "mariadb", "rocketmq"])
def server(request: pytest.FixtureRequest, redis7: Redis, mariadb: MariaDB, rocketmq_quick: RocketMQ) -> Server:
    servers = {
        "redis": Server(kill=redis7.kill, start=redis7.start),
        "mariadb": Server(kill=mariadb.kill, start=mariadb.start),
        "rocketmq": Server(kill=rocketmq_quick.broker_process.kill, start=rocketmq_quick.start_broker),
    }
    return servers[request.param]


async def test_a_server_is_killed_under_a_fleet_that_sells(whole_fleet: WholeFleet, server: Server) -> None:
    fleet, witness = whole_fleet, Witness()
    sale = fleet.start_sale(stock=5_000)
    rush = Rush(fleet.shops, sale, witness)

    def turned_away() -> int:
        return sum(rush.heard[code] for code in UNANSWERED)

    async with rush.going_on(at_once=6):
        await until(lambda: rush.winners >= 20, "it sells")
        await asyncio.to_thread(server.kill)
        await until(lambda: turned_away() >= 6, "buyers hear that it cannot sell")
        await asyncio.to_thread(server.start)
        back_s, before = time.monotonic(), rush.winners
        await until(lambda: rush.winners >= before + 20, "it sells again", SELLS_WITHIN_S)
        print(f"20 winners {time.monotonic() - back_s:.1f} s after the server was back")
    assert set(rush.heard) <= UNANSWERED - {CUT_OFF} | {"queued"}, rush.heard
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    ledger = settled_down(fleet.shop, sale)
    came = [id_of(sale, name) for name in buyers(rush.came)]
    ordered = sum(fleet.shop.shows(id_, Status.AWAITING_PAYMENT) for id_ in came)
    assert ledger["sql"]["awaiting_payment"] == ordered >= len(witness.told)


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
async def test_every_process_is_killed_in_turn_during_one_rush(whole_fleet: WholeFleet) -> None:
    """1,500 buyers, who ask again where they have no answer. Some pay, and the units of the others sell again."""
    fleet, witness = whole_fleet, Witness()
    sale = fleet.start_sale(stock=1_000, payment_window_s=8)
    rush = Rush(fleet.shops, sale, witness, patience_s=120.0)
    waves = [buyers(150, f"wave-{number}") for number in range(len(Part) * TWINS)]
    paid: Counter[str] = Counter()
    for number, wave in enumerate(waves):
        killing = asyncio.create_task(asyncio.to_thread(kill_and_launch, fleet, number))
        await rush.of(wave)
        told = [id_ for name in wave if (id_ := id_of(sale, name)) in witness.told]
        await asyncio.to_thread(pay_for, fleet, told[:15], paid)
        await killing

    print(rush.heard, paid)
    assert sum(rush.heard.values()) == 1_500
    assert not UNANSWERED & set(rush.heard), rush.heard
    await until(lambda: not fleet.shop.ledger(sale)["sql"]["awaiting_payment"], "each order is paid or has expired")
    ledger = settled_down(fleet.shop, sale)["sql"]
    assert witness.all_are(fleet.shop, Status.PAID, Status.CANCELLED), "whoever was told has ended"
    assert (ledger["awaiting_payment"], ledger["available"]) == (0, 1_000 - ledger["paid"])
    assert ledger["paid"] == sum(status == Status.PAID for status in witness.told.values()) > 0
    assert ledger["paid"] + ledger["refunds"] == sum(paid.values()), "no money was lost"
    for id_ in rush.finally_refused:
        assert not fleet.shop.shows(id_, Status.PAID)
    audit = command(fleet.home, "audit", "--json", settings=fleet.settings)
    assert audit.returncode == 0, audit.stdout + audit.stderr


def kill_and_launch(fleet: WholeFleet, turn: int) -> None:
    """Part after part: first the one that leads, where one leads; in the second round the other one. A supervisor
    starts it again at once."""
    part = list(Part)[turn % len(Part)]
    first, second = sorted(fleet.twins[part], key=PartProcess.leads, reverse=turn < len(Part))
    second.wait_until_ready()
    time.sleep(random.uniform(0, 0.3))
    first.kill()
    first.launch()


def pay_for(fleet: WholeFleet, reservations: list[str], outcomes: Counter[str]) -> None:
    """At whichever API takes it. A payment whose order has expired meanwhile is one to refund."""
    for id_ in reservations:

        def paid(id_: str = id_) -> str | None:
            for shop in fleet.shops:
                with suppress(httpx.TransportError):
                    answer = shop.pay(id_, f"pay-{id_}")
                    return answer.json()["applied"] if answer.status_code == 200 else None
            return None

        outcomes[eventually(paid, f"{id_} is paid")] += 1


async def test_an_api_is_asked_to_stop_with_two_hundred_reserves_in_flight(whole_fleet: WholeFleet) -> None:
    """F50. Small batches in one lane, so that they are in flight at the stop; its twins go on."""
    fleet, witness = whole_fleet, Witness()
    leaving = fleet.start_guest(Part.API, DROPGATE_LANES="1", DROPGATE_BATCH_MAX="4")
    sale = fleet.start_sale(stock=1_000)

    def stop_once(winners: int) -> None:
        if winners == 1:
            leaving.send(signal.SIGTERM)

    rush = Rush([fleet.shop_at(leaving)], sale, witness, stop_once)
    await rush.of(buyers(200))
    assert leaving.wait() == 0, leaving.log_end()
    assert its_stop_s(leaving) < GRACE_S
    assert set(rush.heard) <= UNANSWERED - {"outcome_unknown"} | {"queued"}, rush.heard
    assert rush.heard["queued"] > 1, "what was in flight was finished"

    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    ledger = settled_down(fleet.shop, sale)
    assert ledger["sql"]["awaiting_payment"] == len(witness.told), "and nobody else has"


def its_stop_s(process: PartProcess) -> float:
    """From its hearing of SIGTERM to its last line."""
    stopping, stopped = (
        datetime.fromisoformat(process.logged(action)[-1]["time"]) for action in ("stopping", "stopped")
    )
    return (stopped - stopping).total_seconds()


def test_each_process_that_is_asked_to_stop_does_so_in_time(whole_fleet: WholeFleet) -> None:
    """All at once, so the machine is busy with it."""
    for process in whole_fleet.all_twins():
        process.send(signal.SIGTERM)
    for process in whole_fleet.all_twins():
        assert process.wait() == 0, process.log_end()
        assert process.logged("stopped")[-1]["drained"]
        assert its_stop_s(process) < GRACE_S
    print({process.log.stem: its_stop_s(process) for process in whole_fleet.all_twins()})
