"""A real Redis 7 that is slow, deaf, rude, full or failed over in mid-sale (F37, F40, F41, F42).

Every story ends quiet: the books balance, and nobody was told what is not so.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import redis

from service.adapters.redis.options import RedisOptions
from service.adapters.redis.scripts import load_scripts
from service.domain.ids import BuyerId, reservation_id
from tests.fixtures.crowd import Crowd, crowd, percentile, watched_loop
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.sql import rules
from tests.fixtures.stacks import Servers
from tests.fixtures.stage import SALE, Process, Stage, counted, until
from tests.servers.redis7 import Redis
from tests.servers.sentinel import WatchedRedis

pytestmark = [pytest.mark.server, pytest.mark.faults, pytest.mark.timeout(120)]

HOLE_S = 4.0
IN_DOUBT = {"outcome_unknown", "unavailable"}
SETTINGS = {
    "transaction_timeout_s": 0.3,
    "transaction_check_interval_s": 0.3,
    "transaction_check_max": 100,
    "drain_timeout_s": 3.0,
    "sweep_after_s": 0.5,
}


@dataclass(frozen=True)
class Behind:
    """A Redis that is spoken to through a proxy; the test itself speaks to it directly."""

    server: Redis
    proxy: TcpProxy

    @property
    def url(self) -> str:
        return f"redis://{self.proxy.address}/0"

    @property
    def folder(self) -> Path:
        return self.server.folder

    def call(self, *command: Any) -> Any:
        return self.server.call(*command)

    def start(self) -> None:
        self.server.start()

    def kill(self) -> None:
        self.server.kill()

    def restart(self) -> None:
        self.server.restart()


@pytest.fixture
def behind(make_redis7: Callable[..., Redis], make_proxy: Callable[[str], TcpProxy]) -> Behind:
    server = make_redis7()
    return Behind(server, make_proxy(f"127.0.0.1:{server.port}"))


@pytest.fixture
def servers(behind: Behind, migrated_sqlite: Path, tmp_path: Path) -> Servers:
    shutil.copy(migrated_sqlite, tmp_path / "dropgate.db")
    return Servers(redis=behind, settings=SETTINGS)


async def _once_more(stage: Stage, buyer: str) -> str:
    """The same key until something is known."""
    codes: list[str] = []

    async def is_known() -> bool:
        heard = await stage.reserve(buyer)
        codes.append(heard.code)
        return not heard.is_unknown

    await until(is_known, f"{buyer} hears something")
    return codes[-1]


# --- replies that never come (F37) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [False, True], ids=["EVALSHA", "EVAL after NOSCRIPT"])
async def test_a_deduction_whose_reply_is_cut_happened_once_and_is_its_buyers(
    stage: Stage, behind: Behind, flushed: bool
) -> None:
    await stage.process("order", "keeper")
    await stage.sale(rules(stock=2))
    assert (await stage.reserve("first")).code == "queued"
    if flushed:
        behind.call("SCRIPT", "FLUSH")
    script = load_scripts().reserve
    behind.proxy.cut_replies(1, of=script.source.encode() if flushed else script.sha.encode())
    anna = await stage.reserve("anna")
    assert (anna.code, behind.proxy.cut_count) == ("outcome_unknown", 1)
    assert (await stage.slot()).available == 0
    assert (await stage.reserve("bert")).code == "sold_out"
    assert await _once_more(stage, "anna") in {"queued", "awaiting_payment"}
    await stage.becomes(reservation_id(SALE, BuyerId("anna"), "k"), "awaiting_payment")
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 0


async def test_a_release_whose_reply_is_cut_gives_back_once(stage: Stage, behind: Behind) -> None:
    await stage.process("order", "keeper")
    await stage.sale(rules(stock=2))
    anna = await stage.reserve("anna")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await until(lambda: _is_delivered(stage), "the order is confirmed in Redis")
    behind.proxy.cut_replies(1, of=load_scripts().end.sha.encode())
    assert (await stage.cancel(anna.reservation_id)).code == "cancelled"
    await stage.quiet()
    assert behind.proxy.cut_count == 1
    assert (await stage.slot()).available == 2


async def _is_delivered(stage: Stage) -> bool:
    return (await stage.slot()).undelivered_batches == 0


# --- crowds (F40) -----------------------------------------------------------------------------------------------------


async def test_a_storm_of_calls_of_which_half_are_cancelled_leaves_nothing_behind(stage: Stage, behind: Behind) -> None:
    """2,000 at once on a pool of 20, reservations and questions; then business as usual."""
    stage.settings = stage.settings.model_copy(update={"redis_pool_max": 20})
    process = await stage.process("keeper")
    await stage.sale(rules(stock=3_000))
    queued = [await stage.reserve(f"queued-{number}") for number in range(5)]
    connections = [int(behind.call("INFO", "clients")["connected_clients"])]
    storm = [asyncio.create_task(stage.reserve(f"storm-{number}")) for number in range(400)]
    storm += [asyncio.create_task(stage.get(queued[number % 5].reservation_id)) for number in range(1_600)]
    for number, task in enumerate(storm):
        if number % 50 == 0:
            await asyncio.sleep(0.002)
            connections.append(int(behind.call("INFO", "clients")["connected_clients"]))
        if number % 2:
            task.cancel()
    ends = await asyncio.gather(*storm, return_exceptions=True)
    heard = Counter("cancelled" if isinstance(end, BaseException) else end.code for end in ends)
    print(f"{dict(heard)}, at most {max(connections)} connections")
    assert heard.keys() <= {"queued", "awaiting_payment", "too_busy", "cancelled", *IN_DOUBT}
    assert not {type(end) for end in ends if isinstance(end, BaseException)} - {asyncio.CancelledError}
    assert max(connections) <= 20 + 2, "the pool, and this test's own"
    began = time.monotonic()
    again = await asyncio.gather(*[stage.reserve(f"after-{number}") for number in range(100)])
    assert {it.code for it in again} == {"queued"}
    print(f"100 afterwards in {time.monotonic() - began:.2f} s")
    await process.stop("keeper", "readiness")
    await until(_nobody_calls, "every connection came back")
    process.start("order", "keeper")
    await stage.quiet()


async def _nobody_calls() -> bool:
    return counted("dropgate_redis_connections_in_use") == 0


# --- a black hole (F41) -----------------------------------------------------------------------------------------------


async def test_a_black_hole_holds_up_nobody_longer_than_a_batch_and_its_call(stage: Stage, behind: Behind) -> None:
    """A hundred at a time. Whoever comes waits for the batch under way, and for the one call of its own."""
    await stage.process("order", "keeper")
    sale = await stage.sale(rules(stock=100_000))
    in_flight: list[float] = []
    async with crowd(stage, size=100, patient=False) as buyers:
        await until(lambda: _at_least(buyers.heard, 300), "they buy")
        behind.proxy.swallow()
        before = len(buyers.heard), len(buyers.waited_s)
        async with watched_loop() as lag:
            ends_s = time.monotonic() + HOLE_S
            while time.monotonic() < ends_s:
                await asyncio.sleep(0.05)
                in_flight.append(counted("dropgate_batches_in_flight"))
        codes, waited_s = Counter(it.code for it in buyers.heard[before[0] :]), buyers.waited_s[before[1] :]
        behind.proxy.heal()
        healed = time.monotonic()
        await until(lambda: _is_queued(stage), "it sells again", 10.0)
        recovered_s = time.monotonic() - healed
    print(f"{dict(codes)}; waited {percentile(waited_s, 50):.2f} s, p99 {percentile(waited_s, 99):.2f} s;")
    print(f"loop late by {percentile(lag.late_s, 99) * 1000:.0f} ms (p99), {max(lag.late_s) * 1000:.0f} ms at most;")
    print(f"{max(in_flight):.0f} batches in flight at most, sells again after {recovered_s:.2f} s")
    assert codes.keys() <= {"queued", "awaiting_payment", *IN_DOUBT}
    assert codes["queued"] + codes["awaiting_payment"] <= 200, "what was under way when it began"
    settings = stage.settings
    budget_s = RedisOptions(
        timeout_s=settings.redis_timeout_s, connect_timeout_s=settings.redis_connect_timeout_s
    ).budget_s
    assert max(waited_s) < settings.queue_age_max_s + budget_s
    assert len(lag.late_s) > 10 * HOLE_S, "a loop that waited for Redis would turn once a call"
    assert max(in_flight) <= settings.lanes
    assert (await stage.row()).epoch == sale.epoch, "away for a moment is not lost"
    await stage.quiet()


async def _at_least(heard: list[Any], number: int) -> bool:
    return len(heard) >= number


async def _is_queued(stage: Stage) -> bool:
    return (await stage.reserve(f"probe-{time.monotonic_ns()}")).code == "queued"


# --- rudeness under load ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _again_and_again(act: Callable[[], Awaitable[object]], every_s: float) -> AsyncIterator[None]:
    async def repeat() -> None:
        while True:
            await act()
            await asyncio.sleep(every_s)

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        with suppress(asyncio.CancelledError):
            await repeating


async def test_scripts_that_are_flushed_again_and_again_are_sent_again_and_nobody_notices(
    stage: Stage, behind: Behind
) -> None:
    stage.settings = stage.settings.model_copy(update={"redis_timeout_s": 10.0})  # a slow machine is not the matter
    await stage.process("order", "keeper")
    await stage.sale(rules(stock=2_000))

    async def flush() -> None:
        await asyncio.to_thread(behind.call, "SCRIPT", "FLUSH")

    async with _again_and_again(flush, 0.02), crowd(stage, patient=False) as buyers:
        await until(lambda: _at_least(buyers.heard, 150), "they buy")
    assert set(buyers.codes) == {"queued"}
    await stage.quiet()


async def test_connections_that_are_killed_again_and_again_cost_no_unit_and_no_buyer(
    stage: Stage, behind: Behind
) -> None:
    await stage.process("order", "keeper")
    await stage.process()
    await stage.sale(rules(stock=150))

    async def kill() -> None:
        await asyncio.to_thread(behind.call, "CLIENT", "KILL", "TYPE", "normal")

    async with _again_and_again(kill, 0.05), crowd(stage) as buyers:
        await until(lambda: _at_least(buyers.heard, 170), "they buy it out")
    assert buyers.codes.keys() <= {"queued", "awaiting_payment", "sold_out"}
    assert buyers.codes["queued"] + buyers.codes["awaiting_payment"] == 150
    print(f"{sum(stage.told.story(id_)[0] in IN_DOUBT for id_ in stage.told.ids())} were in doubt at first")
    await stage.quiet()
    assert (await stage.ledger()).sql.available == 0


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
async def test_a_write_that_redis_refuses_is_rolled_back_at_once_and_asked_about_by_nobody(
    stage: Stage, behind: Behind, setting: str
) -> None:
    process = await stage.process("order", "keeper")
    await stage.sale()
    await process.stop("readiness")  # it would shut the gate first
    checks = counted("dropgate_check_backs_total", verdict="rollback")
    behind.call("CONFIG", "SET", setting, "1")
    refused = await asyncio.gather(*[stage.reserve(f"early-{number}") for number in range(20)])
    assert {it.code for it in refused} == {"unavailable"}
    await until(lambda: _no_halves(stage), "the broker has every ROLLBACK")
    assert counted("dropgate_check_backs_total", verdict="rollback") == checks
    behind.call("CONFIG", "SET", setting, "0")
    assert (await stage.slot()).available == 10
    assert (await stage.reserve("early-0")).code == "queued", "the same key wins in a new batch"
    await stage.quiet()


async def _no_halves(stage: Stage) -> bool:
    return (await stage.backlog()).halves == 0


async def test_a_full_redis_shuts_the_gate_and_opens_it_when_it_has_room(stage: Stage, behind: Behind) -> None:
    process = await stage.process("order", "keeper")
    await stage.sale()
    behind.call("CONFIG", "SET", "maxmemory", "1")
    (full,) = await process.cases.readiness.missing()
    assert full.startswith("redis: Redis is full (")
    halves = counted("dropgate_batches_total", end="rollback")
    assert (await stage.reserve("anna")).code == "unavailable"
    assert counted("dropgate_batches_total", end="rollback") == halves, "no half message was sent"
    behind.call("CONFIG", "SET", "maxmemory", "0")
    await until(lambda: _is_ready(process), "it is ready again")
    assert (await stage.reserve("anna")).code == "queued"
    await stage.quiet()


async def _is_ready(process: Process) -> bool:
    return not await process.cases.readiness.missing()


async def test_a_redis_that_is_busy_with_somebodys_script_is_waited_for(stage: Stage, behind: Behind) -> None:
    """It answers BUSY to everything: reservations hear 503 at once, and the sale goes on afterwards in its epoch."""
    await stage.process("order", "keeper")
    sale = await stage.sale()
    behind.call("CONFIG", "SET", "busy-reply-threshold", "10")

    def hog() -> None:
        with suppress(redis.RedisError):
            behind.call("EVAL", "while true do end", 0)

    somebody = asyncio.create_task(asyncio.to_thread(hog))
    await until(lambda: _hears(stage, "unavailable"), "it is busy")
    began = time.monotonic()
    assert (await stage.reserve("anna")).code == "unavailable"
    assert time.monotonic() - began < 1.0
    await asyncio.to_thread(behind.call, "SCRIPT", "KILL")
    await somebody
    assert await _once_more(stage, "anna") == "queued"
    assert (await stage.row()).epoch == sale.epoch
    await stage.quiet()


async def _hears(stage: Stage, code: str) -> bool:
    return (await stage.reserve(f"probe-{time.monotonic_ns()}")).code == code


async def _sold_out(buyers: Crowd) -> bool:
    return buyers.codes["sold_out"] > 0


# --- failover (F42) ---------------------------------------------------------------------------------------------------


class TestBehindSentinels:
    """The stage's Redis is whichever the Sentinels name."""

    @pytest.fixture
    def servers(self, watched_redis: WatchedRedis, migrated_sqlite: Path, tmp_path: Path) -> Servers:
        shutil.copy(migrated_sqlite, tmp_path / "dropgate.db")
        return Servers(redis=watched_redis, settings=SETTINGS)

    @pytest.mark.parametrize("how", ["an operator asks for it", "the master is killed"])
    async def test_a_failover_under_load_is_a_loss_and_the_sale_sells_on(
        self, stage: Stage, watched_redis: WatchedRedis, how: str
    ) -> None:
        """Two API processes, of which one leads; then it is sold to the last unit."""
        misrouted = counted("dropgate_misrouted_reports_total")
        await stage.process("order", "keeper")
        await stage.process()
        sale = await stage.sale(replace(rules(stock=250), queue_deadline_s=30))
        async with crowd(stage, size=4) as buyers:
            await until(lambda: _at_least(buyers.heard, 40), "they buy")
            began = time.monotonic()
            if how == "the master is killed":
                await asyncio.to_thread(watched_redis.master().kill)
            else:
                await asyncio.to_thread(watched_redis.fail_over)
            after = await stage.at_home(after_epoch=sale.epoch)
            rebuilt_s = time.monotonic() - began
            so_far = len(buyers.heard)
            await until(lambda: _at_least(buyers.heard, so_far + 40), "they buy on")
        print(f"{how}: sells again after {rebuilt_s:.1f} s; {dict(buyers.codes)}")
        assert buyers.codes.keys() <= {"queued", "awaiting_payment", "rejected", "sold_out"}
        assert after.epoch >= sale.epoch + 2, "redis -> sql -> loading, redis"
        async with crowd(stage, name="late") as late:
            await until(lambda: _sold_out(late), "they buy it out")
        await stage.quiet()
        assert counted("dropgate_misrouted_reports_total") == misrouted, "no process reports another's Redis"
        assert (await stage.ledger()).sql.available == 0

    async def test_what_a_promoted_replica_never_heard_of_is_sold_all_the_same(
        self, stage: Stage, watched_redis: WatchedRedis
    ) -> None:
        """Ten are told `queued`, by a master that dies before its replica hears of them: SQL makes their orders."""
        process = await stage.process("keeper")
        sale = await stage.sale(rules(stock=15))
        before = await stage.reserve("before")
        replica = watched_redis.second.process
        replica.send(signal.SIGSTOP)
        lost = await asyncio.gather(*[stage.reserve(f"lost-{number}") for number in range(10)])
        assert {it.code for it in lost} == {"queued"}
        await asyncio.to_thread(watched_redis.first.kill)
        replica.send(signal.SIGCONT)
        await stage.at_home(after_epoch=sale.epoch)
        process.start("order")
        for it in (before, *lost):
            await stage.becomes(it.reservation_id, "awaiting_payment")
        late = await asyncio.gather(*[stage.reserve(f"late-{number}") for number in range(10)])
        assert Counter(it.code for it in late) == {"queued": 4, "sold_out": 6}
        await stage.quiet()
        assert (await stage.ledger()).sql.available == 0
