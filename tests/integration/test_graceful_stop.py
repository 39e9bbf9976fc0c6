"""SIGTERM: intake closes, what is in flight is finished, the process is gone in time; and what happens when a part dies
without being asked (F50)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.domain.reservation import Status
from service.settings import Settings
from tests.fixtures.mariadb_ways import at
from tests.fixtures.processes import DevProcess, Victim, eventually
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.shop import Call, Shop, Witness
from tests.fixtures.victim import Fall, Seam
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(180)]

GRACE_S = 10.0
IDLE_S = 3.0
"""Under 2 s on a machine that has nothing else to do: a consumer notices within the 1 s of its receive."""
STOP_S = Settings().stop_timeout_s
CLOSE_S = 10.0
"""To close what is open, after that."""
SALE = "drop"

Make = Callable[..., Any]


def stop(dev: DevProcess) -> tuple[int, float]:
    """SIGTERM: the exit code, and how long it took."""
    began_s = time.monotonic()
    dev.send(signal.SIGTERM)
    code = dev.wait()
    return code, time.monotonic() - began_s


def all_have_orders(shop: Shop, witness: Witness) -> None:
    eventually(lambda: witness.all_are(shop, Status.AWAITING_PAYMENT), "each of them has an order")


async def rush(shop: Shop, buyers: list[str], on_winner: Callable[[], None], witness: Witness) -> Counter[str]:
    """What they heard. A connection may be refused or closed; an answer is whole."""
    heard: Counter[str] = Counter()

    async def one(client: httpx.AsyncClient, buyer: str) -> None:
        body, headers = {"buyer_id": buyer, "quantity": 1}, shop.reserve_headers("k")
        try:
            response = await client.post(f"/v1/sales/{SALE}/reservations", json=body, headers=headers)
        except httpx.TransportError:
            heard["no connection"] += 1
            return
        witness.hear(response)
        answer = response.json()
        heard[answer.get("code", answer.get("status"))] += 1
        if response.status_code == 202:
            on_winner()

    limits = httpx.Limits(max_connections=len(buyers))
    async with httpx.AsyncClient(base_url=shop.url, limits=limits, timeout=30, trust_env=False) as client:
        await asyncio.gather(*[one(client, buyer) for buyer in buyers])
    return heard


def sells_again(shop: Shop, epoch: int) -> Callable[[], bool]:
    """Loaded anew, in an epoch after this one: before that the row still shows the Redis that went with its process."""
    return lambda: shop.sells_by_redis(SALE) and shop.sale(SALE)["epoch"] > epoch


def takes(shop: Shop, witness: Witness, buyer: str) -> Callable[[], bool]:
    def taken() -> bool:
        answer = shop.reserve(SALE, buyer)
        witness.hear(answer)
        return answer.status_code in {200, 202}

    return taken


async def test_a_stop_under_fire_leaves_nobody_without_a_word_and_nothing_in_doubt(make_dev: Make) -> None:
    """100 reserves in flight, three times; small batches in one lane, so that they are still in flight at the stop."""
    slow_lane = {"DROPGATE_LANES": "1", "DROPGATE_BATCH_MAX": "4"}
    dev, witness = make_dev(**slow_lane), Witness()
    shop = dev.start()
    shop.start_sale(SALE, stock=1_000)
    for number in range(3):
        told = threading.Event()

        def stop_once(told: threading.Event = told) -> None:
            if not told.is_set():
                told.set()
                dev.send(signal.SIGTERM)

        epoch = shop.sale(SALE)["epoch"]
        began_s = time.monotonic()
        heard = await rush(shop, [f"buyer-{number}-{i}" for i in range(100)], stop_once, witness)
        assert told.is_set(), heard
        assert dev.wait() == 0, dev.log_end()
        assert time.monotonic() - began_s <= GRACE_S
        assert set(heard) <= {"queued", "unavailable", "no connection"}, heard
        assert heard["queued"] > 1, "what was in flight was finished"
        shop = dev.start()
        all_have_orders(shop, witness)
        # Its Redis was lost with the process: the next round begins once the sale sells again.
        eventually(sells_again(shop, epoch), "the sale is loaded again")
        eventually(takes(shop, witness, f"first-{number}"), "and this process has seen it")
    eventually(lambda: shop.is_settled_down(SALE), "quiet and balanced")
    assert shop.ledger(SALE)["sql"]["awaiting_payment"] == len(witness.told), "and nobody else has"


def test_an_idle_process_stops_at_once(make_dev: Make) -> None:
    """The best of three: the machine may have other things to do."""
    dev = make_dev()
    took_s: list[float] = []
    for _ in range(3):
        dev.start().start_sale(SALE, stock=1) if not took_s else dev.start()
        code, seconds = stop(dev)
        assert code == 0
        took_s.append(seconds)
        if seconds < IDLE_S:
            return
    raise AssertionError(f"it took {took_s} s")


def test_while_it_drains_it_says_so_and_takes_no_new_buyer(make_victim: Make, make_dev: Make) -> None:
    """One reserve hangs for ever: the drain lasts until its deadline, the exit code says that it was cut off, and the
    check-back resolves it after all."""
    victim: Victim = make_victim(Seam.HALF_SENT, DROPGATE_STOP_TIMEOUT_S="4")
    shop = victim.start()
    shop.start_sale(SALE, stock=5)
    victim.arm()
    waiting = Call(lambda: shop.reserve(SALE, "anna"))
    victim.wait_at_seam()

    victim.send(signal.SIGTERM)
    eventually(lambda: "stopping" in shop.get_raw("/readyz").text, "readyz says that it is stopping")
    assert shop.get_raw("/readyz").status_code == 503
    assert shop.get_raw("/healthz").status_code == 200
    refused = shop.reserve(SALE, "bert")
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert "retry-after" in refused.headers
    assert victim.wait(GRACE_S + 5) == 1
    cut_off = waiting.response()
    assert (cut_off.status_code, cut_off.json()["code"]) == (503, "outcome_unknown")

    shop = make_dev().start()
    eventually(lambda: shop.is_settled_down(SALE), "nothing is in doubt")


@pytest.mark.faults
@pytest.mark.parametrize("silent", ["mariadb", "both"])
def test_asked_to_stop_while_a_server_is_silent_it_is_gone_in_time(
    silent: str, make_dev: Make, redis7: Redis, mariadb: MariaDB, make_proxy: Callable[[str], TcpProxy]
) -> None:
    """Nothing was in flight. No connection of ours hears a word any more, not even that it was closed."""
    ways = {"redis": make_proxy(f"127.0.0.1:{redis7.port}"), "mariadb": make_proxy(mariadb.address)}
    redis7.call("FLUSHALL")
    dev = make_dev(
        DROPGATE_REDIS_URL=f"redis://{ways['redis'].address}/0",
        DROPGATE_DATABASE_URL=at(mariadb.new_database(), ways["mariadb"].address),
    )
    shop = dev.start()
    shop.start_sale(SALE, stock=5)
    shop.reserve(SALE, "anna")
    dev.eventually(lambda: shop.is_settled_down(SALE), "her order is there")

    for server in ways if silent == "both" else [silent]:
        ways[server].swallow()

    code, seconds = stop(dev)
    assert code in {0, 1}, dev.log_end()
    assert not dev.said("Traceback"), dev.log_end()
    assert dev.logged("stopped"), dev.log_end()
    assert seconds <= STOP_S + CLOSE_S, dev.log_end()


@pytest.mark.faults
def test_the_embedded_redis_is_killed_and_the_process_lives_and_rebuilds_it(make_dev: Make) -> None:
    dev, witness = make_dev(), Witness()
    shop = dev.start()
    shop.start_sale(SALE, stock=3)
    witness.hear(shop.reserve(SALE, "anna"))
    eventually(lambda: witness.all_are(shop, Status.AWAITING_PAYMENT), "her order is there")
    epoch = shop.sale(SALE)["epoch"]

    os.kill(dev.redis_pid(), signal.SIGKILL)

    dev.eventually(lambda: shop.sale(SALE)["epoch"] > epoch and shop.sells_by_redis(SALE), "it sells again")
    dev.eventually(lambda: witness.hear(shop.reserve(SALE, "bert")).status_code == 202, "and takes a buyer")
    dev.eventually(lambda: witness.all_are(shop, Status.AWAITING_PAYMENT), "both have their orders")
    assert shop.reserve(SALE, "anna", key="another").json()["code"] == "limit_reached", "her allowance is remembered"
    dev.eventually(lambda: shop.is_settled_down(SALE), "quiet and balanced")
    assert stop(dev)[0] == 0


@pytest.mark.faults
def test_a_part_that_dies_of_a_bug_takes_the_process_with_it(make_victim: Make) -> None:
    """A loop that is dead and silent is the worst of all states: a supervisor starts a new process."""
    victim: Victim = make_victim(Seam.LOADED)
    shop = victim.start()
    shop.create_sale(SALE, stock=1)
    victim.arm(Fall.RAISE)
    threading.Thread(target=_open_in_vain, args=(shop,)).start()
    assert victim.wait() == 1
    assert victim.said('"action": "part_died"')
    assert victim.said("a bug, put here by a test")


def _open_in_vain(shop: Shop) -> None:
    try:
        shop.open_sale(SALE)
    except (httpx.TransportError, AssertionError):
        return
