"""Messages that are tried again while a database is away, and dead letters on the real broker (F54)."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.ids import ReservationId
from service.domain.replay import Outcome, Replay, Scope, Source
from service.ports.messaging import Dead
from tests.fixtures.stacks import ON_REAL_SERVERS
from tests.fixtures.stage import Process, Stage, counted, until

pytestmark = [
    pytest.mark.either_client,
    pytest.mark.one_client_suffices,
    pytest.mark.faults,
    pytest.mark.slow,
    ON_REAL_SERVERS,
]

DEAD_LETTERS = Scope(source=Source.DEAD_LETTER)
GARBAGE = b"not a batch"


async def test_a_database_that_is_away_costs_no_order_and_makes_no_dead_letter(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale()
    ids = [(await stage.reserve(f"buyer-{number}")).reservation_id for number in range(10)]
    mariadb = stage.servers.mariadb
    assert mariadb is not None
    await asyncio.to_thread(mariadb.kill)
    try:
        retried = retries(stage)
        process.start("order")
        await until(lambda: more_retries(stage, retried + 2), "the messages were tried in vain")
    finally:
        await asyncio.to_thread(mariadb.start)
    for id_ in ids:
        await stage.becomes(id_, "awaiting_payment")
    assert await letters(process) == []
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == len(ids)


async def test_a_malformed_message_is_dead_counted_refused_and_in_nobodys_way(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale()
    await process.deliver([GARBAGE])
    anna = await stage.reserve("anna")
    dead = counted("dropgate_dead_letters_total", group=group_of(stage))
    process.start("order")
    await stage.becomes(anna.reservation_id, "awaiting_payment")
    await until(lambda: are_dead(process, 1), "it is a dead letter")
    assert counted("dropgate_dead_letters_total", group=group_of(stage)) == dead + 1
    (item,) = (await replay(process)).items
    assert item.outcome is Outcome.REFUSED
    assert await letters(process) == [GARBAGE], "it stays, for a person to look at"
    await stage.quiet()


async def test_a_dead_letter_replayed_three_times_is_one_order(stage: Stage) -> None:
    process = await stage.process("keeper")
    await stage.sale()
    await process.kill("keeper")  # its sweep would make the order
    anna = await bury(stage, process, "anna")
    first, *others = [await replay(process) for _ in range(3)]
    assert [item.outcome for item in first.items] == [Outcome.ORDERED]
    assert [item for other in others for item in other.items] == [], "it is dealt with"
    other_process = await stage.process()
    assert await letters(other_process) == []
    await stage.quiet()
    assert set(await stage.orders([anna])) == {anna}


# --- what the stories are made of -------------------------------------------------------------------------------------


async def bury(stage: Stage, process: Process, buyer: str) -> ReservationId:
    """Somebody's consumer takes the message for poison."""
    heard = await stage.reserve(buyer)
    consumer = await process.adapters.transport.consumer(stage.topics.order.name, group_of(stage), invisible_s=5.0)

    async def buried() -> bool:
        for delivery in await consumer.receive(1, 1.0):
            await consumer.settle(delivery, Dead(why="a test"))
        return await are_dead(process, 1)

    await until(buried, "it is a dead letter")
    await consumer.close()
    return heard.reservation_id


def group_of(stage: Stage) -> str:
    return stage.topics.order.group or ""


def retries(stage: Stage) -> float:
    return counted("dropgate_messages_total", group=group_of(stage), outcome="retry")


async def more_retries(stage: Stage, than: float) -> bool:
    return retries(stage) > than


async def letters(process: Process) -> list[bytes]:
    found = await process.adapters.transport.dead_letters(process.cases.topics.order.group or "", 100)
    return [letter.body for letter in found]


async def are_dead(process: Process, count: int) -> bool:
    return len(await letters(process)) == count


async def replay(process: Process) -> Replay:
    return await process.cases.replays.act(DEAD_LETTERS, why="F54", actor="sre")
