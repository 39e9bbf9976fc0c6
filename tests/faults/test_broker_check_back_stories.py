"""Check-backs of the real broker: who is asked, what a late COMMIT is worth, and what ends where nobody is asked."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from service.adapters.rocketmq.grpc.hooks import HookedProducer
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.messages import StoredMessage
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.domain.ids import ReservationId
from tests.fixtures.broker_way import drop_ends, url_of
from tests.fixtures.clients import reserved
from tests.fixtures.fleet import Fleet
from tests.fixtures.processes import Process
from tests.fixtures.proxy import TcpProxy
from tests.fixtures.shop import id_of
from tests.fixtures.sql import rules
from tests.fixtures.stacks import ON_REAL_SERVERS
from tests.fixtures.stage import SALE, Stage, counted, until
from tests.fixtures.victim import Fall, Seam
from tests.servers.rocketmq import QUICK

pytestmark = [pytest.mark.faults, pytest.mark.slow, ON_REAL_SERVERS]

FIRST_ANSWER_S = (QUICK.transaction_timeout_ms + 2 * QUICK.transaction_check_interval_ms) / 1000
"""So soon after its half message a question is answered, where somebody is there to be asked (F06)."""
PATIENCE_S = 10.0
"""A busy machine's."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
QUEUES = 8
PULLED = 32
IN_DOUBT = 30
CHECKS = "dropgate_check_backs_total"
AGE = "dropgate_in_doubt_age_seconds"
WATCH_S = 0.05
"""The keeper sets it with each of its sweeps."""


@pytest.fixture
async def keeping(stage: Stage) -> Stage:
    """A sale, and a process that makes orders of messages only: it is never asked, and sweeps up nothing."""
    stage.settings = stage.settings.model_copy(update={"sweep_after_s": 600.0})
    await stage.process("order", "keeper", registered=False)
    await stage.sale()
    return stage


# --- somebody is there to be asked ------------------------------------------------------------------------------------


async def test_an_idle_process_answers_for_predecessors_that_were_all_killed(keeping: Stage, fleet: Fleet) -> None:
    """F06: killed between Lua and COMMIT; the next one hears no request at all, and is asked all the same."""
    victims = [fleet.api(name, trap=Seam.DEDUCTED) for name in ("first", "second")]
    shops = await fleet.start(*victims)
    await asyncio.gather(*map(fleet.fall, victims, shops, ("anna", "bert")))
    await fleet.kill(*victims)
    assert len(await keeping.undelivered()) == 2
    await fleet.start(fleet.api("third"))
    await orders_appear(keeping, "anna", "bert")
    await keeping.quiet()


async def test_a_process_that_started_without_its_broker_is_asked_once_that_is_there(
    keeping: Stage, fleet: Fleet, make_proxy: Callable[[str], TcpProxy]
) -> None:
    """F06: no route at its start. It is not ready, tries again, and needs no traffic either."""
    assert keeping.servers.rocketmq is not None
    victim = fleet.api("victim", trap=Seam.DEDUCTED)
    (shop,) = await fleet.start(victim)
    await fleet.fall(victim, shop, "anna")
    await fleet.kill(victim)
    way = make_proxy(keeping.servers.rocketmq.proxy)
    way.refuse()
    late = fleet.api("late", broker_url=url_of(way))
    starting = asyncio.create_task(fleet.start(late))
    await until(lambda: said(late, '"loop": "registration"'), "it says that it cannot register")
    assert not starting.done(), "it is ready without being registered"
    way.heal()
    await starting
    await orders_appear(keeping, "anna")
    await keeping.quiet()


async def orders_appear(stage: Stage, *buyers: str) -> None:
    """Within the time that a broker needs which has somebody to ask."""
    began_s = time.monotonic()
    for buyer in buyers:
        await stage.becomes(ReservationId(id_of(SALE, buyer)), "awaiting_payment")
    waited_s = time.monotonic() - began_s
    print(f"orders {waited_s:.1f} s after the process was ready")
    assert waited_s < FIRST_ANSWER_S + PATIENCE_S


async def said(process: Process, text: str) -> bool:
    return process.said(text)


# --- a COMMIT that comes late -----------------------------------------------------------------------------------------


async def test_a_commit_that_comes_after_the_answer_is_a_hint_and_nothing_of_ours_is_immune_to_questions(
    keeping: Stage, fleet: Fleet
) -> None:
    """F16: asleep between Lua and COMMIT for longer than the broker waits. A message with an immunity time would not be
    asked about meanwhile, and its COMMIT, later than that time, would be refused."""
    sleeper = fleet.api("sleeper", trap=Seam.DEDUCTED)
    (shop,) = await fleet.start(sleeper)
    await fleet.fall(sleeper, shop, "anna", Fall.PAUSE)
    halves = await halves_of(keeping)
    assert halves
    await keeping.process()
    id_ = ReservationId(id_of(SALE, "anna"))
    await keeping.becomes(id_, "awaiting_payment")
    sleeper.send(signal.SIGCONT)
    await fleet.close()
    assert (await keeping.reserve("anna")).code == "awaiting_payment"
    await keeping.quiet()
    assert (await keeping.ledger()).sql.awaiting_payment == 1
    delivered = await stored(keeping, keeping.topics.order.name)
    assert delivered
    for message in (*halves, *delivered):
        assert not [name for name in message.properties if "IMMUNITY" in name], message


async def halves_of(stage: Stage) -> list[StoredMessage]:
    order = stage.topics.order.name
    return [it for it in await stored(stage, HALF_TOPIC, queues=1) if it.properties.get("REAL_TOPIC") == order]


async def stored(stage: Stage, topic: str, *, queues: int = QUEUES) -> list[StoredMessage]:
    """As the broker has them: the last of each queue, more than any story here sends."""
    assert stage.servers.rocketmq is not None
    client, found = RemotingClient(), list[StoredMessage]()
    broker = BrokerQueues(client, stage.servers.rocketmq.broker)
    for queue in range(queues):
        offsets = await broker.offsets(topic, queue)
        for first in range(max(offsets.first, offsets.end - 4 * PULLED), offsets.end, PULLED):
            found += (await broker.pull(topic, queue, first, PULLED)).messages
    await client.close()
    return found


# --- nobody is ever asked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deaf", [False, True], ids=["nobody_is_registered", "no_question_arrives"])
async def test_what_nobody_is_asked_about_raises_the_alarm_and_is_ended_by_the_keeper(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, deaf: bool
) -> None:
    """F17: neither the alarm nor the end of what is in doubt depends on the broker's questions."""
    stage.settings = stage.settings.model_copy(update={"batch_max": 1})
    await stage.process("order", "keeper", registered=False)
    seller = await stage.process(lanes=16)
    await stage.sale(rules(stock=IN_DOUBT))
    answered = counted(CHECKS, verdict="commit")
    with monkeypatch.context() as broken:
        drop_ends(broken, lambda: True)
        if deaf:
            broken.setattr(HookedProducer, "on_recover_orphaned_transaction_command", lambda *_: None)
        async with watched_alarm() as ages_s:
            heard = await asyncio.gather(*[reserved(stage, f"b-{number}", at=seller) for number in range(IN_DOUBT)])
            if not deaf:
                stage.processes.remove(seller)
                await seller.close()
            await ended_by_the_keeper(stage, [it.reservation_id for it in heard])
    print(f"the alarm rose to {max(ages_s):.1f} s")
    assert max(ages_s) >= stage.settings.sweep_after_s
    assert counted(CHECKS, verdict="commit") == answered
    if not deaf:
        await stage.process()
    await stage.quiet()
    assert (await stage.ledger()).sql.awaiting_payment == IN_DOUBT


@asynccontextmanager
async def watched_alarm() -> AsyncIterator[list[float]]:
    """The values of its metric meanwhile. On a busy machine the first are ended before the last are reserved."""
    ages_s: list[float] = []

    async def watch() -> None:
        while True:
            ages_s.append(counted(AGE, sale=SALE))
            await asyncio.sleep(WATCH_S)

    watching = asyncio.create_task(watch())
    try:
        yield ages_s
    finally:
        watching.cancel()


async def ended_by_the_keeper(stage: Stage, ids: Sequence[ReservationId]) -> None:
    async def ended() -> bool:
        return len(await stage.orders(ids)) == len(ids) and counted(AGE, sale=SALE) == 0

    await until(ended, "all have orders, and the alarm is over", stage.settings.sweep_after_s + PATIENCE_S)
