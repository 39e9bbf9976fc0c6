"""Producers are down until the broker asks no more; then an operator replays what was discarded (F04)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from service.adapters.rocketmq.remoting.cluster import Cluster
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.adapters.sql.database import Database
from service.domain.ids import ReservationId
from service.domain.replay import Outcome, Replay, Scope, Source
from service.domain.stock import SlotCount
from tests.fixtures.real_servers import ON_ALL_SERVERS
from tests.fixtures.seams import away, reply_lost
from tests.fixtures.sql import rules
from tests.fixtures.stacks import Servers, on_real_servers
from tests.fixtures.stage import Heard, Process, Stage, counted, until
from tests.servers.mariadb import MariaDB
from tests.servers.redis7 import Redis
from tests.servers.rocketmq import SHORT, RocketMQ

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.faults,
    pytest.mark.slow,
    *ON_ALL_SERVERS,
]

DISCARDED = Scope(source=Source.DISCARDED)
WON, UNTOUCHED = 6, 2
"""Half messages whose deduction happened, and such that were not even tried."""
LIMIT_S = SHORT.transaction_timeout_ms * (SHORT.transaction_check_max + 1) / 1000
WHY = "the producers were down from 3 to 4"


@pytest.fixture
def servers(rocketmq_short: RocketMQ, mariadb: MariaDB, redis7: Redis, migrated_mysql: str) -> Servers:
    """Two questions, 2 s apart, and then none."""
    return on_real_servers(rocketmq_short, mariadb, redis7, migrated_mysql)


async def test_what_was_discarded_ends_in_one_order_or_none_however_often_it_is_replayed(stage: Stage) -> None:
    ids = await leave_halves_to_the_check_limit(stage)
    await alarm(stage, len(ids))
    operator = await stage.process(registered=False)
    before = await everything(stage)
    planned = await operator.cases.replays.look(DISCARDED, actor="sre")
    assert {item.outcome for item in planned.items} == {Outcome.PLANNED}
    assert await everything(stage) == before, "a dry run changes nothing"

    for _ in range(2):
        await stage.process("order")
    with resumes_counted() as resumed:
        at_once = await asyncio.gather(*[replay(operator) for _ in range(5)])
    assert {item.outcome for one in at_once for item in one.items} == {Outcome.PENDING}, "accepted is not ended"
    assert sorted(resumed) == sorted({str(item.message_id) for item in planned.items}), "the broker took each once"
    await until(lambda: all_ended(operator, at_once), "each says how it ended", LIMIT_S + 30)

    again = await replay(operator)
    assert {item.outcome for item in again.items} <= {Outcome.NO_OP}
    assert set(await stage.orders(ids)) == set(ids[:WON])
    assert await audited(stage) >= len(ids)
    await stage.quiet()
    ledger = await stage.ledger()
    assert (ledger.sql.awaiting_payment, ledger.sql.available) == (WON, 10 - WON)


async def test_a_keeper_that_comes_back_ends_them_by_itself_beside_the_operator(stage: Stage) -> None:
    ids = await leave_halves_to_the_check_limit(stage)
    operator = await stage.process(registered=False)
    await stage.process("keeper", "order")
    await asyncio.gather(*[replay(operator) for _ in range(3)])
    await until(lambda: nothing_discarded(operator), "nothing is discarded any more", LIMIT_S + 30)
    await stage.quiet()
    assert set(await stage.orders(ids)) == set(ids[:WON])


# --- what the stories are made of -------------------------------------------------------------------------------------


async def leave_halves_to_the_check_limit(stage: Stage) -> list[ReservationId]:
    """Winners that nobody committed, candidates that nobody tried; all processes are gone when the broker gives up."""
    keeper = await stage.process("keeper", registered=False)
    await stage.sale(rules(stock=10))
    api = await stage.process(lanes=1)
    api.seam.after["reserve"] = reply_lost
    api.seam.before["resolve"] = away  # nor does it answer while it is there
    won = [await left_in_doubt(stage, f"won-{number}", api) for number in range(WON)]
    api.seam.before["reserve"] = away
    untouched = [await left_in_doubt(stage, f"untouched-{number}", api) for number in range(UNTOUCHED)]
    await gone(stage, keeper, api)
    witness = await stage.process(registered=False)
    count = WON + UNTOUCHED
    await until(lambda: are_discarded(witness, count), "the broker has given up on all", LIMIT_S + 30)
    slot = await stage.slot()
    assert isinstance(slot, SlotCount)
    assert slot.held == WON
    return [*won, *untouched]


async def left_in_doubt(stage: Stage, buyer: str, api: Process) -> ReservationId:
    """Its half message is there. Until it is, its buyer tries again."""
    heard: list[Heard] = []

    async def unknown() -> bool:
        heard[:] = [await stage.reserve(buyer, at=api)]
        return heard[0].code == "outcome_unknown"

    await until(unknown, f"{buyer} is in doubt")
    return heard[0].reservation_id


async def gone(stage: Stage, *processes: Process) -> None:
    for process in processes:
        await process.close()
        stage.processes.remove(process)


async def alarm(stage: Stage, count: int) -> None:
    """A keeper sees them, and can end none while Redis is away: its gauge says so before anybody looks."""
    keeper = await stage.process(registered=False)
    for call in ("resolve", "batches", "undelivered"):
        keeper.seam.before[call] = away
    keeper.start("keeper")

    async def rings() -> bool:
        return counted("dropgate_discarded_halves") >= count

    await until(rings, "the alarm rings")
    await gone(stage, keeper)


async def are_discarded(process: Process, count: int) -> bool:
    return len(await process.adapters.transport.discarded(100)) >= count


async def nothing_discarded(process: Process) -> bool:
    return not await process.adapters.transport.discarded(100)


@contextmanager
def resumes_counted() -> Iterator[list[str]]:
    """The ids of all that the broker was asked to resume."""
    resumed: list[str] = []
    resume_check = Cluster.resume_check

    async def counting(cluster: Cluster, physical_id: str) -> StoredMessage:
        resumed.append(physical_id)
        return await resume_check(cluster, physical_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "resume_check", counting)
        yield resumed


async def replay(operator: Process) -> Replay:
    return await operator.cases.replays.act(DISCARDED, why=WHY, actor="sre")


async def ends(operator: Process, replays: list[Replay]) -> dict[str | None, Outcome]:
    """Of each message, as the replays that took it say now."""
    found: dict[str | None, Outcome] = {}
    for one in replays:
        assert one.id is not None
        for taken, item in zip(one.items, (await operator.cases.replays.get(one.id)).items, strict=True):
            if taken.outcome is Outcome.PENDING:
                found[item.message_id] = item.outcome
    return found


async def all_ended(operator: Process, replays: list[Replay]) -> bool:
    return set((await ends(operator, replays)).values()) <= {Outcome.ORDERED, Outcome.RELEASED}


async def everything(stage: Stage) -> dict[bytes, bytes | None]:
    """Redis, key by key."""
    return {key: stage.server.call("DUMP", key) for key in stage.server.call("KEYS", "*")}


async def audited(stage: Stage) -> int:
    """Rows that name who replayed and why."""
    database = Database(stage.settings.database_url)
    try:
        async with database.reading() as connection:
            query = text("SELECT count(*) FROM audit WHERE act = 'replay' AND actor = 'sre' AND why = :why")
            return int((await connection.execute(query, {"why": WHY})).scalar_one())
    finally:
        await database.close()
