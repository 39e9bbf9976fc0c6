"""kill -9 while hundreds of buyers rush a sale: of everything, of the order consumer, of the time-out consumer."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.cli.dev import DevKeys
from service.core.leadership import LEASE_TTL_MS
from service.domain.reservation import Status
from tests.fixtures.processes import DevProcess, Process, ServeProcess, command, eventually
from tests.fixtures.rush import Rush, buyers, until
from tests.fixtures.shop import Shop, Witness, id_of

pytestmark = [pytest.mark.faults, pytest.mark.server, pytest.mark.slow]

LIVE = {Status.QUEUED, Status.AWAITING_PAYMENT, Status.PAID}

Make = Callable[..., Any]


@pytest.mark.timeout(300)
async def test_five_kills_in_five_rushes_leave_books_that_balance(make_dev: Make, home: Path) -> None:
    """The embedded Redis goes with each: what it knew is gone, what clients were told is not (I5, I7)."""
    dev, witness, refused = make_dev(), Witness(), set[str]()
    shop = dev.start()
    for number in range(5):
        sale, seen_before_kill = f"drop-{number}", random.randint(1, 40)
        shop.start_sale(sale, stock=50)

        def kill_then(winners: int, limit: int = seen_before_kill) -> None:
            if winners == limit:
                dev.kill()

        rush = Rush([shop], sale, witness, kill_then)
        await rush.of(buyers(300))
        assert not dev.is_running(), f"it was to die in the rush: {rush.heard}"
        refused |= rush.finally_refused
        shop = dev.start()
        witness.ask(shop)
    quiet = [f"drop-{number}" for number in range(5)]
    eventually(lambda: all(map(shop.is_settled_down, quiet)), "every sale is quiet and balanced")
    eventually(lambda: witness.all_are(shop, Status.AWAITING_PAYMENT, Status.REJECTED), "every reservation has ended")
    for id_ in refused:
        assert shop.status(id_) not in LIVE, f"{id_} was refused for good"
    audit = command(home, "audit", "--json")
    assert audit.returncode == 0, audit.stdout + audit.stderr


# --- parts in processes of their own ----------------------------------------------------------------------------------


class Parts:
    """`serve`, `keeper` and the consumers, each a process on one folder with the embedded stack."""

    def __init__(self, home: Path, care_for: Callable[[Process], Process], **settings: str) -> None:
        self._home = home
        self._care_for = care_for
        self.settings = settings
        self.keeper: Process
        self.serve: ServeProcess
        self.keys: DevKeys

    def start(self, name: str, *arguments: str, ready: str) -> Process:
        part = Process(self._home, name, "service", *arguments, "--home", str(self._home), settings=self.settings)
        self._care_for(part)
        self.start_again(part, ready)
        return part

    @staticmethod
    def start_again(part: Process, ready: str) -> None:
        said = part.log.read_text().count(ready) if part.log.exists() else 0
        part.launch()
        part.eventually(lambda: part.log.read_text().count(ready) > said, f"it says {ready!r}")


ORDER = "Orders are being made"
TIMEOUT = "Unpaid orders are being timed out"
KEEPER = "The keeper is running"


@pytest.fixture
def parts(home: Path, make_dev: Make, care_for: Callable[[Process], Process]) -> tuple[Parts, Shop]:
    """The API, which owns the embedded Redis, and the keeper. A run of `dev` has made schema, topics and keys."""
    dev: DevProcess = make_dev()
    dev.start()
    keys = dev.keys
    dev.kill()
    # The sweep of decided batches is put off: the message alone must bring each order.
    parts = Parts(home, care_for, DROPGATE_SWEEP_AFTER_S="600", DROPGATE_PAYMENT_SECRETS=keys.payment_secret)
    parts.keys = keys
    parts.serve = ServeProcess(
        home, "serve", "service", "serve", "--home", str(home), "--port", "0", settings=parts.settings
    )
    care_for(parts.serve)
    shop = parts.serve.start(keys)
    parts.keeper = parts.start("keeper", "keeper", ready=KEEPER)
    return parts, shop


@asynccontextmanager
async def killed_again_and_again(part: Process, ready: str, pause_s: float) -> AsyncIterator[list[int]]:
    """The part dies of kill -9 at random moments as long as the block runs, and is running at its end; how often it
    died, in a list of one."""
    kills, ended = [0], asyncio.Event()

    async def work() -> None:
        while not ended.is_set():
            await asyncio.sleep(random.uniform(0, pause_s))
            await asyncio.to_thread(part.kill)
            kills[0] += 1
            await asyncio.to_thread(Parts.start_again, part, ready)

    task = asyncio.create_task(work())
    try:
        yield kills
    finally:
        ended.set()
        await task


@pytest.mark.timeout(300)
async def test_order_consumers_killed_all_the_time_lose_and_double_no_order(parts: tuple[Parts, Shop]) -> None:
    """F58. Nothing is acknowledged before its COMMIT: what a dead consumer held comes again."""
    product, shop = parts
    witness = Witness()
    shop.start_sale("drop", stock=500)
    consumer = product.start("order", "consume", "order", ready=ORDER)
    async with killed_again_and_again(consumer, ORDER, pause_s=0.3) as kills:
        rush = Rush([shop], "drop", witness)
        for start in range(0, 500, 50):
            await rush.of(buyers(500)[start : start + 50])
        await until(lambda: kills[0] >= 5, "it died five times")
    assert rush.heard == {"queued": 500}
    eventually(lambda: shop.ledger("drop")["sql"]["awaiting_payment"] == 500, "every order is there", within_s=90)
    assert witness.all_are(shop, Status.AWAITING_PAYMENT)
    eventually(lambda: shop.is_settled_down("drop"), "quiet and balanced")


@pytest.mark.timeout(300)
async def test_time_out_consumers_and_keepers_killed_all_the_time_give_each_unit_back_once(
    parts: tuple[Parts, Shop],
) -> None:
    """F20. SQL first, then Redis: whatever a kill leaves between them, a sweep finishes."""
    product, shop = parts
    witness = Witness()
    shop.start_sale("drop", stock=100, payment_window_s=8)
    product.start("order", "consume", "order", ready=ORDER)
    timeout = product.start("timeout", "consume", "timeout", ready=TIMEOUT)
    rush = Rush([shop], "drop", witness)
    await rush.of(buyers(100))
    assert rush.heard == {"queued": 100}
    paid = [id_of("drop", buyer) for buyer in buyers(100)[:10]]
    outcomes = Counter(shop.pay(id_, f"pay-{id_}").json()["applied"] for id_ in paid)
    assert set(outcomes) <= {"applied", "waiting"}

    async with (
        killed_again_and_again(timeout, TIMEOUT, pause_s=0.5) as kills,
        killed_again_and_again(product.keeper, KEEPER, pause_s=LEASE_TTL_MS / 1000) as keeper_kills,
    ):
        await until(
            lambda: shop.ledger("drop")["sql"]["awaiting_payment"] == 0 and kills[0] >= 4 and keeper_kills[0] >= 2,
            "every unpaid order is cancelled, by whoever was alive",
        )
    eventually(lambda: shop.is_settled_down("drop"), "quiet and balanced")
    ledger = shop.ledger("drop")
    assert (ledger["sql"]["available"], ledger["sql"]["paid"]) == (90, 10)
    assert ledger["segments"][0]["available"] == 90
    assert witness.all_are(shop, Status.CANCELLED, Status.PAID)
    assert sum(status is Status.PAID for status in witness.told.values()) == 10


@pytest.mark.timeout(120)
async def test_the_process_that_ran_the_embedded_redis_is_killed_and_another_runs_it(
    parts: tuple[Parts, Shop],
) -> None:
    product, shop = parts
    witness = Witness()
    shop.start_sale("drop", stock=10)
    product.start("order", "consume", "order", ready=ORDER)
    await Rush([shop], "drop", witness).of(buyers(5))
    epoch = shop.sale("drop")["epoch"]

    product.serve.kill()

    again = product.serve.start(product.keys)
    eventually(lambda: again.sells_by_redis("drop") and again.sale("drop")["epoch"] > epoch, "it sells again")
    await Rush([again], "drop", witness).of([f"late-{number}" for number in range(5)])
    eventually(lambda: witness.all_are(again, Status.AWAITING_PAYMENT), "every order is there")
    eventually(lambda: again.is_settled_down("drop"), "quiet and balanced")
