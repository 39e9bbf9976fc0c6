"""One suite for every adapter of ports.stock: the double, the scripts on Valkey, and on the machine's Redis if any."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.memory.stock import MemoryStock
from service.adapters.redis.client import RedisClient
from service.adapters.redis.stock import RedisStock
from service.domain.batch import BATCH_MAX
from service.domain.ids import BuyerId, new_batch_id
from service.domain.sale import ServerIds
from service.domain.stock import (
    Adjusted,
    Applied,
    Batches,
    BatchRecord,
    Effect,
    Fenced,
    FenceWritten,
    Known,
    LateRules,
    Loaded,
    LoadRefused,
    Lost,
    No,
    Peeked,
    RecordState,
    Refusal,
    Reserved,
    Slot,
    TooFewLeft,
    Undecided,
    Won,
)
from service.ports.stock import Stock
from tests.fixtures.acl import PASSWORD, USER, least_user
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import batch, candidate, candidates, count, load, new_slot, record_of, refused, reserve

KEEP, RETURN, WRITE_OFF = Effect.KEEP, Effect.RETURN, Effect.WRITE_OFF


@dataclass
class Rig:
    stock: Stock
    clock: ManualClock
    lose: Callable[[], None]


SERVERS = [
    pytest.param("memory", id="memory"),
    pytest.param("valkey", id="valkey", marks=pytest.mark.server),
    pytest.param("redis", id="redis", marks=pytest.mark.server),
    pytest.param("least", id="redis, as the user with the least permissions", marks=pytest.mark.server),
]


@pytest.fixture(params=SERVERS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    clock = ManualClock()
    if request.param == "memory":
        double = MemoryStock(clock)
        yield Rig(double, clock, double.lose)
        return
    least = request.param == "least"
    server: RealServer = request.getfixturevalue("redis_server" if least else f"{request.param}_server")
    client = RedisClient(_as_least_user(server) if least else server.url)
    yield Rig(RedisStock(client, clock), clock, lambda: server.call("FLUSHALL"))
    await client.close()


def _as_least_user(server: RealServer) -> str:
    server.call(*least_user())
    return server.url.replace("://", f"://{USER}:{PASSWORD}@")


@pytest.fixture
def stock(rig: Rig) -> Stock:
    return rig.stock


@pytest.fixture
async def slot(stock: Stock) -> Slot:
    """A loaded slot with ten units."""
    slot = new_slot()
    assert await load(stock, slot, 10) == Loaded()
    return slot


async def ok(pending: object) -> Reserved:
    reply = await pending  # type: ignore[misc]
    assert isinstance(reply, Reserved), reply
    return reply


# --- reserve ----------------------------------------------------------------------------------------------------------


async def test_winners_take_units_and_are_queued(stock: Stock, slot: Slot) -> None:
    anna, ben = candidate(slot, "anna", quantity=2), candidate(slot, "ben")
    message = await reserve(stock, slot, anna, ben, limit=2)
    terms = await count(stock, slot)
    assert (terms.available, terms.queued, terms.undelivered_batches) == (7, 3, 1)
    ids = [anna.reservation_id, ben.reservation_id]
    assert await stock.find(slot, ids) == {it.reservation_id: record_of(it, message) for it in (anna, ben)}


async def test_a_batch_decided_once_is_replayed(stock: Stock, slot: Slot) -> None:
    other = candidate(slot, "other")
    await reserve(stock, slot, other)
    mixed = batch(slot, candidate(slot, "anna"), other, candidate(slot, "ben", quantity=10))
    first = await ok(stock.reserve(slot, mixed, 10))
    second = await ok(stock.reserve(slot, mixed, 10))
    assert (first.replayed, second.replayed) == (False, True)
    assert first.answers == second.answers
    assert [type(answer) for answer in first.answers.values()] == [Won, Known, Refusal]
    assert (await count(stock, slot)).held == 2


async def test_a_batch_of_losers_only_is_decided_once_too(stock: Stock, slot: Slot) -> None:
    hoarder, late_comer = candidate(slot, "hoarder", quantity=10), candidate(slot, "anna")
    await reserve(stock, slot, hoarder, limit=10)
    losers = batch(slot, late_comer)
    assert refused((await ok(stock.reserve(slot, losers, 1))).answers, late_comer) is No.SEGMENT_EMPTY
    await stock.end(slot, {hoarder.reservation_id: RETURN})
    again = await ok(stock.reserve(slot, losers, 1))
    assert again.replayed
    assert refused(again.answers, late_comer) is No.SEGMENT_EMPTY
    assert await stock.resolve(slot, losers.batch_id) == BatchRecord(winners=frozenset())
    assert (await count(stock, slot)).available == 10


async def test_a_loser_may_win_in_another_batch(stock: Stock, slot: Slot) -> None:
    hoarder, anna = candidate(slot, "hoarder", quantity=10), candidate(slot, "anna")
    await reserve(stock, slot, hoarder, limit=10)
    await stock.reserve(slot, batch(slot, anna), 1)
    await stock.end(slot, {hoarder.reservation_id: RETURN})
    await reserve(stock, slot, anna)


async def test_an_id_that_another_batch_decided_is_known(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    message = await reserve(stock, slot, anna)
    reply = await ok(stock.reserve(slot, batch(slot, anna), 1))
    assert reply.answers == {anna.reservation_id: Known(record=record_of(anna, message))}
    assert (await count(stock, slot)).held == 1


async def test_the_same_id_twice_in_a_batch_counts_once(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    reply = await ok(stock.reserve(slot, batch(slot, anna, anna), 5))
    assert reply.answers == {anna.reservation_id: Won()}
    assert (await count(stock, slot)).held == 1


async def test_one_buyer_twice_in_a_batch_meets_the_limit(stock: Stock, slot: Slot) -> None:
    first, second = candidate(slot, "anna", key="a"), candidate(slot, "anna", key="b")
    message = batch(slot, first, second)
    reply = await ok(stock.reserve(slot, message, 1))
    assert reply.answers[first.reservation_id] == Won()
    refusal = Refusal(no=No.LIMIT_REACHED, live=record_of(first, message), units_held=True)
    assert reply.answers[second.reservation_id] == refusal


async def test_a_limit_counts_units_and_not_reservations(stock: Stock, slot: Slot) -> None:
    two, more, one = (candidate(slot, "anna", key=key, quantity=units) for key, units in (("a", 2), ("b", 2), ("c", 1)))
    reply = await ok(stock.reserve(slot, batch(slot, two, more), 3))
    assert reply.answers[two.reservation_id] == Won()
    assert refused(reply.answers, more) is No.LIMIT_REACHED
    again = await ok(stock.reserve(slot, batch(slot, candidate(slot, "anna", key="d", quantity=2), one), 3))
    assert [type(answer) for answer in again.answers.values()] == [Refusal, Won]


async def test_one_buyer_drains_nothing_with_a_thousand_requests(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 100)
    for part in range(10):
        many = [candidate(slot, "greedy", key=f"{part}-{number}") for number in range(100)]
        await ok(stock.reserve(slot, batch(slot, *many), 1))
    assert (await count(stock, slot)).available == 99
    await reserve(stock, slot, *candidates(slot, 99))
    assert (await count(stock, slot)).available == 0


async def test_running_totals_stop_at_the_last_unit(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 3)
    its = candidates(slot, BATCH_MAX)
    reply = await ok(stock.reserve(slot, batch(slot, *its), 1))
    won = [it for it in its if reply.answers[it.reservation_id] == Won()]
    assert won == its[:3]
    assert (await count(stock, slot)).available == 0


async def test_more_than_is_left_is_refused_and_a_smaller_one_after_it_wins(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 2)
    large, small = candidate(slot, "anna", quantity=3), candidate(slot, "ben", quantity=2)
    reply = await ok(stock.reserve(slot, batch(slot, large, small), 5))
    assert refused(reply.answers, large) is No.SEGMENT_EMPTY
    assert reply.answers[small.reservation_id] == Won()


async def test_an_empty_slot_says_whether_a_unit_may_come_back(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 1)
    anna, ben = candidate(slot, "anna"), candidate(slot, "ben")
    await reserve(stock, slot, anna)
    held = await ok(stock.reserve(slot, batch(slot, ben), 1))
    assert held.answers == {ben.reservation_id: Refusal(no=No.SEGMENT_EMPTY, units_held=True)}
    await stock.end(slot, {anna.reservation_id: WRITE_OFF})
    gone = await ok(stock.reserve(slot, batch(slot, ben), 1))
    assert gone.answers == {ben.reservation_id: Refusal(no=No.SEGMENT_EMPTY, units_held=False)}


async def test_a_limit_shows_the_newest_live_reservation(stock: Stock, slot: Slot) -> None:
    first, second, third = (candidate(slot, "anna", key=key) for key in "abc")
    old = await reserve(stock, slot, first, limit=2)
    await reserve(stock, slot, second, limit=2)
    await stock.end(slot, {second.reservation_id: RETURN})
    reply = await ok(stock.reserve(slot, batch(slot, third), 1))
    answer = reply.answers[third.reservation_id]
    assert answer == Refusal(no=No.LIMIT_REACHED, live=record_of(first, old), units_held=True)


async def test_ids_and_buyers_are_bytes_without_folding(stock: Stock, slot: Slot) -> None:
    names = ["anna", "Anna", "ánna", "anna ", "anna\x00", "安娜", "x" * 300]
    await reserve(stock, slot, *(candidate(slot, name) for name in names))
    found = await stock.find(slot, [candidate(slot, name).reservation_id for name in names])
    assert not isinstance(found, Lost)
    assert [record.buyer_id for record in found.values()] == names


# --- peek -------------------------------------------------------------------------------------------------------------


async def test_a_peek_writes_nothing_and_knows_winners_before_limits(stock: Stock, slot: Slot) -> None:
    won, again, new = candidate(slot, "anna"), candidate(slot, "anna", key="b"), candidate(slot, "ben")
    too_many = candidate(slot, "cleo", quantity=10)
    record = record_of(won, await reserve(stock, slot, won))
    before = await count(stock, slot)
    reply = await stock.peek(slot, [won, again, new, too_many], 1)
    assert isinstance(reply, Peeked)
    assert reply.answers[won.reservation_id] == Known(record=record)
    assert reply.answers[again.reservation_id] == Refusal(no=No.LIMIT_REACHED, live=record, units_held=True)
    assert reply.answers[new.reservation_id] == Undecided()
    assert await count(stock, slot) == before


async def test_a_peek_refuses_nobody_for_those_before_him(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 1)
    its = candidates(slot, 3)
    reply = await stock.peek(slot, its, 1)
    assert reply == Peeked(answers={it.reservation_id: Undecided() for it in its})


async def test_a_retry_by_a_winner_is_never_told_sold_out(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 1)
    anna, ben = candidate(slot, "anna"), candidate(slot, "ben")
    record = record_of(anna, await reserve(stock, slot, anna))
    reply = await stock.peek(slot, [anna, ben], 1)
    assert isinstance(reply, Peeked)
    assert reply.answers[anna.reservation_id] == Known(record=record)
    assert reply.answers[ben.reservation_id] == Refusal(no=No.SEGMENT_EMPTY, units_held=True)


async def test_finding_many_ids_leaves_out_the_unknown(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    await reserve(stock, slot, anna)
    ids = [it.reservation_id for it in candidates(slot, 1_200)]
    found = await stock.find(slot, [*ids, anna.reservation_id])
    assert not isinstance(found, Lost)
    assert list(found) == [anna.reservation_id]
    assert await stock.find(slot, []) == {}


# --- check-back -------------------------------------------------------------------------------------------------------


async def test_late_deduct_after_a_fence_changes_nothing(stock: Stock, slot: Slot) -> None:
    anna, ben = candidate(slot, "anna"), candidate(slot, "ben")
    record = record_of(anna, await reserve(stock, slot, anna))
    late = batch(slot, anna, ben)
    assert await stock.resolve(slot, late.batch_id) == FenceWritten()
    assert await stock.resolve(slot, late.batch_id) == FenceWritten()
    before = await count(stock, slot)
    assert await stock.reserve(slot, late, 1) == Fenced(known={anna.reservation_id: record})
    assert await count(stock, slot) == before
    assert await stock.find(slot, [ben.reservation_id]) == {}
    await reserve(stock, slot, ben)


async def test_a_check_back_after_the_deduct_names_the_winners(stock: Stock, slot: Slot) -> None:
    anna, large = candidate(slot, "anna"), candidate(slot, "ben", quantity=50)
    message = batch(slot, anna, large)
    await ok(stock.reserve(slot, message, 50))
    assert await stock.resolve(slot, message.batch_id) == BatchRecord(winners=frozenset({anna.reservation_id}))


# --- batches ----------------------------------------------------------------------------------------------------------


async def test_the_body_stays_until_no_winner_is_queued(stock: Stock, slot: Slot) -> None:
    anna, ben = candidate(slot, "anna"), candidate(slot, "ben")
    message = await reserve(stock, slot, anna, ben)
    ids = [anna.reservation_id, ben.reservation_id]
    await stock.confirm(slot, {ids[0]: KEEP})
    found = await stock.batches(slot, [message.batch_id, new_batch_id()])
    assert isinstance(found, Batches)
    assert list(found.found) == [message.batch_id]
    stored = found.found[message.batch_id]
    assert stored.message == message
    states = [stored.winners[id_].state for id_ in ids]
    assert states == [RecordState.ORDERED, RecordState.QUEUED]

    await stock.confirm(slot, {ids[1]: KEEP})
    after = await stock.batches(slot, [message.batch_id])
    assert isinstance(after, Batches)
    assert after.found[message.batch_id].message.candidates == ()
    assert (await count(stock, slot)).undelivered_batches == 0
    assert (await ok(stock.reserve(slot, message, 1))).answers == dict.fromkeys(ids, Won())


async def test_undelivered_batches_come_oldest_first(rig: Rig, stock: Stock, slot: Slot) -> None:
    messages = []
    for it in candidates(slot, 4):
        messages.append(await reserve(stock, slot, it))
        await rig.clock.advance(60)
    await stock.confirm(slot, {messages[1].candidates[0].reservation_id: KEEP})
    old = rig.clock.now_ms() - 90_000
    found = await stock.undelivered(slot, old, 10)
    assert isinstance(found, Batches)
    assert list(found.found) == [messages[0].batch_id, messages[2].batch_id]
    first = await stock.undelivered(slot, old, 1)
    assert isinstance(first, Batches)
    assert list(first.found) == [messages[0].batch_id]


async def test_ending_its_last_queued_winner_delivers_a_batch(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    await reserve(stock, slot, anna)
    await stock.end(slot, {anna.reservation_id: RETURN})
    assert (await count(stock, slot)).undelivered_batches == 0


async def test_a_batch_that_is_only_fenced_is_not_found(stock: Stock, slot: Slot) -> None:
    id_ = new_batch_id()
    await stock.resolve(slot, id_)
    assert await stock.batches(slot, [id_]) == Batches(found={})


# --- endings ----------------------------------------------------------------------------------------------------------


async def test_release_twice_gives_back_once(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna", quantity=3)
    await reserve(stock, slot, anna, limit=3)
    release = {anna.reservation_id: RETURN}
    assert await stock.end(slot, release) == Applied(changed=frozenset(release))
    assert await stock.end(slot, release) == Applied(changed=frozenset())
    assert await stock.end(slot, {anna.reservation_id: WRITE_OFF}) == Applied(changed=frozenset())
    terms = await count(stock, slot)
    assert (terms.granted, terms.available) == (10, 10)


async def test_a_buyer_is_not_locked_out_by_a_dead_reservation(stock: Stock, slot: Slot) -> None:
    first, second = candidate(slot, "anna", key="a"), candidate(slot, "anna", key="b")
    await reserve(stock, slot, first)
    await stock.end(slot, {first.reservation_id: RETURN})
    await reserve(stock, slot, second)
    reply = await ok(stock.reserve(slot, batch(slot, first), 5))
    answer = reply.answers[first.reservation_id]
    assert isinstance(answer, Known)
    assert answer.record.state is RecordState.ENDED


async def test_an_order_returns_its_units_too(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna", quantity=2)
    await reserve(stock, slot, anna, limit=2)
    id_ = anna.reservation_id
    assert await stock.confirm(slot, {id_: KEEP}) == Applied(changed=frozenset({id_}))
    assert (await count(stock, slot)).ordered == 2
    await stock.end(slot, {id_: RETURN})
    assert (await count(stock, slot)).available == 10
    assert await stock.confirm(slot, {id_: KEEP}) == Applied(changed=frozenset())
    assert (await count(stock, slot)).held == 0


async def test_written_off_units_are_not_sold_again(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna", quantity=4)
    await reserve(stock, slot, anna, limit=4)
    await stock.confirm(slot, {anna.reservation_id: WRITE_OFF})
    terms = await count(stock, slot)
    assert (terms.granted, terms.available) == (6, 6)
    await reserve(stock, slot, candidate(slot, "anna", key="b"))


async def test_confirm_leaves_alone_what_it_does_not_know(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    for effect in Effect:
        assert await stock.confirm(slot, {anna.reservation_id: effect}) == Applied(changed=frozenset())
    await reserve(stock, slot, anna)


async def test_an_unknown_id_that_ended_can_never_win(stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    id_ = anna.reservation_id
    assert await stock.end(slot, {id_: KEEP}) == Applied(changed=frozenset())
    assert await stock.end(slot, {id_: RETURN}) == Applied(changed=frozenset({id_}))
    assert await stock.end(slot, {id_: RETURN}) == Applied(changed=frozenset())
    reply = await ok(stock.reserve(slot, batch(slot, anna), 1))
    answer = reply.answers[id_]
    assert isinstance(answer, Known)
    assert (answer.record.state, answer.record.buyer_id) == (RecordState.ENDED, "")
    assert (await count(stock, slot)).available == 10


async def test_many_endings_in_one_call(stock: Stock) -> None:
    slot = new_slot()
    await load(stock, slot, 300)
    its = candidates(slot, 300)
    for at in range(0, 300, 100):
        await reserve(stock, slot, *its[at : at + 100])
    effects = {it.reservation_id: RETURN for it in its}
    assert await stock.end(slot, effects) == Applied(changed=frozenset(effects))
    assert (await count(stock, slot)).available == 300


# --- adjustments ------------------------------------------------------------------------------------------------------


async def test_an_adjustment_is_applied_once(stock: Stock, slot: Slot) -> None:
    for _ in range(3):
        assert await stock.adjust(slot, "more", 5) == Adjusted()
    assert (await count(stock, slot)).granted == 15


async def test_a_decrease_takes_only_what_is_left(stock: Stock, slot: Slot) -> None:
    await reserve(stock, slot, candidate(slot, quantity=8), limit=8)
    assert await stock.adjust(slot, "less", -3) == TooFewLeft(available=2)
    assert await stock.adjust(slot, "less still", -2) == Adjusted()
    terms = await count(stock, slot)
    assert (terms.granted, terms.available) == (8, 0)


async def test_a_refused_decrease_stays_refused_when_units_come_back(stock: Stock, slot: Slot) -> None:
    it = candidate(slot, quantity=10)
    await reserve(stock, slot, it, limit=10)
    assert await stock.adjust(slot, "less", -1) == TooFewLeft(available=0)
    await stock.end(slot, {it.reservation_id: Effect.RETURN})
    assert await stock.adjust(slot, "less", -1) == TooFewLeft(available=10)
    assert (await count(stock, slot)).granted == 10


# --- older epochs -----------------------------------------------------------------------------------------------------


async def test_an_older_candidate_past_its_deadline_is_ended_here_first(rig: Rig, stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    message = batch(slot, anna, epoch=0)
    late = LateRules(deadline_ms=rig.clock.now_ms() + 30_000)
    await rig.clock.advance(60)
    for replayed in (False, True):
        reply = await ok(stock.reserve(slot, message, 1, late))
        assert reply.replayed is replayed
        assert refused(reply.answers, anna) is No.PAST_DEADLINE
    ended = record_of(anna, message, RecordState.ENDED)
    assert await stock.find(slot, [anna.reservation_id]) == {anna.reservation_id: ended}
    other = await ok(stock.reserve(slot, batch(slot, anna), 1))
    assert other.answers == {anna.reservation_id: Known(record=ended)}


async def test_an_older_candidate_before_its_deadline_wins_or_is_ended(rig: Rig, stock: Stock, slot: Slot) -> None:
    anna, large = candidate(slot, "anna"), candidate(slot, "ben", quantity=50)
    late = LateRules(deadline_ms=rig.clock.now_ms() + 30_000)
    reply = await ok(stock.reserve(slot, batch(slot, anna, large, epoch=0), 50, late))
    assert reply.answers[anna.reservation_id] == Won()
    assert refused(reply.answers, large) is No.SEGMENT_EMPTY
    found = await stock.find(slot, [large.reservation_id])
    assert not isinstance(found, Lost)
    assert found[large.reservation_id].state is RecordState.ENDED


async def test_an_older_batch_decided_in_parts_keeps_all_of_them(rig: Rig, stock: Stock, slot: Slot) -> None:
    its = candidates(slot, 3)
    whole = batch(slot, *its, epoch=0)
    late = LateRules(deadline_ms=rig.clock.now_ms() + 30_000)
    for it in its[:2]:
        part = batch(slot, it, id=whole.batch_id, epoch=0)
        assert (await ok(stock.reserve(slot, part, 1, late))).answers == {it.reservation_id: Won()}
    found = await stock.batches(slot, [whole.batch_id])
    assert isinstance(found, Batches)
    assert found.found[whole.batch_id].message.candidates == tuple(its[:2])
    assert set(found.found[whole.batch_id].winners) == {it.reservation_id for it in its[:2]}
    assert (await ok(stock.reserve(slot, whole, 1, late))).answers == {it.reservation_id: Won() for it in its}
    assert (await count(stock, slot)).held == 3


# --- which Redis, which epoch -----------------------------------------------------------------------------------------


async def test_a_lost_redis_decides_nothing(rig: Rig, stock: Stock, slot: Slot) -> None:
    anna = candidate(slot, "anna")
    message = await reserve(stock, slot, anna)
    rig.lose()
    lost = Lost(found=await stock.server_ids(slot))
    id_ = anna.reservation_id
    assert await stock.peek(slot, [anna], 1) == lost
    assert await stock.find(slot, [id_]) == lost
    assert await stock.reserve(slot, message, 1) == lost
    assert await stock.resolve(slot, message.batch_id) == lost
    assert await stock.batches(slot, [message.batch_id]) == lost
    assert await stock.undelivered(slot, rig.clock.now_ms() + 60_000, 5) == lost
    assert await stock.confirm(slot, {id_: KEEP}) == lost
    assert await stock.end(slot, {id_: RETURN}) == lost
    assert await stock.adjust(slot, "more", 1) == lost
    assert await stock.count(slot) == lost
    rebuilt = replace(slot, epoch=slot.epoch + 1)
    await load(stock, rebuilt, 7)
    assert (await count(stock, rebuilt)).available == 7
    assert await stock.find(rebuilt, [id_]) == {}


async def test_another_epoch_is_lost(stock: Stock, slot: Slot) -> None:
    other = replace(slot, epoch=slot.epoch + 1)
    assert await stock.reserve(other, batch(other, candidate(other)), 1) == Lost(found=await stock.server_ids(slot))
    assert (await count(stock, slot)).available == 10


async def test_a_slot_without_its_stamp_is_not_for_sale(stock: Stock) -> None:
    slot = new_slot()
    server = await stock.server_ids(slot)
    await stock.load_stock(slot, server, available=5, buyer_units={}, held=0)
    assert isinstance(await stock.count(slot), Lost)
    assert await stock.stamp(slot, server, now_ms=1) == Loaded()
    assert (await count(stock, slot)).available == 5


async def test_load_after_the_stamp_writes_nothing(stock: Stock, slot: Slot) -> None:
    server = await stock.server_ids(slot)
    await reserve(stock, slot, candidate(slot, "anna"))
    before = await count(stock, slot)
    refusal = LoadRefused(found=server, stamped=True)
    record = record_of(candidate(slot, "ben"), batch(slot))
    assert await stock.load_records(slot, server, [record]) == refusal
    assert await stock.load_stock(slot, server, available=10, buyer_units={}, held=0) == refusal
    assert await stock.stamp(slot, server, now_ms=2) == refusal
    assert await stock.stamp(slot, server, now_ms=1) == Loaded()
    assert await count(stock, slot) == before
    assert await stock.find(slot, [record.reservation_id]) == {}


@pytest.mark.parametrize("wrong", ["run_id", "replid"])
async def test_a_load_that_meets_another_server_writes_nothing(stock: Stock, wrong: str) -> None:
    slot = new_slot()
    server = await stock.server_ids(slot)
    other = replace(server, **{wrong: "0" * 40})
    refusal = LoadRefused(found=server, stamped=False)
    record = record_of(candidate(slot), batch(slot))
    assert await stock.load_records(slot, other, [record]) == refusal
    assert await stock.load_stock(slot, other, available=5, buyer_units={BuyerId("x"): 1}, held=1) == refusal
    assert await stock.stamp(slot, other, now_ms=1) == refusal
    await stock.load_stock(slot, server, available=0, buyer_units={}, held=0)
    await stock.stamp(slot, server, now_ms=1)
    assert (await count(stock, slot)).granted == 0
    assert await stock.find(slot, [record.reservation_id]) == {}


async def test_a_load_repeated_before_the_stamp_counts_once(stock: Stock) -> None:
    slot = new_slot()
    server = await stock.server_ids(slot)
    its = candidates(slot, 3)
    message = batch(slot, *its)
    states = [RecordState.ORDERED, RecordState.ORDERED, RecordState.ENDED]
    records = [record_of(it, message, state) for it, state in zip(its, states, strict=True)]
    units = {it.buyer_id: 1 for it in its[:2]}
    for _ in range(2):
        assert await stock.load_stock(slot, server, available=4, buyer_units=units, held=2) == Loaded()
        assert await stock.load_records(slot, server, records) == Loaded()
    assert await stock.stamp(slot, server, now_ms=1) == Loaded()
    terms = await count(stock, slot)
    assert (terms.granted, terms.available, terms.ordered) == (6, 4, 2)
    assert await stock.find(slot, [it.reservation_id for it in its]) == {it.reservation_id: it for it in records}


async def test_loaded_reservations_count_against_the_limit_and_are_released(stock: Stock) -> None:
    slot = new_slot()
    anna, second = candidate(slot, "anna"), candidate(slot, "anna", key="b")
    record = record_of(anna, batch(slot, anna), RecordState.ORDERED)
    await load(stock, slot, 5, records=[record])
    reply = await ok(stock.reserve(slot, batch(slot, second), 1))
    refusal = Refusal(no=No.LIMIT_REACHED, live=record, units_held=True)
    assert reply.answers == {second.reservation_id: refusal}
    await stock.end(slot, {anna.reservation_id: RETURN})
    assert (await count(stock, slot)).available == 6
    await reserve(stock, slot, candidate(slot, "anna", key="c"))


async def test_a_large_load_comes_in_chunks(stock: Stock) -> None:
    slot = new_slot()
    its = candidates(slot, 1_300)
    message = batch(slot, *its)
    records = [record_of(it, message, RecordState.ORDERED) for it in its]
    assert await load(stock, slot, 7, records=records) == Loaded()
    terms = await count(stock, slot)
    assert (terms.granted, terms.ordered, terms.buyers_units) == (1_307, 1_300, 1_300)


async def test_unlinked_keys_are_lost(stock: Stock, slot: Slot) -> None:
    await reserve(stock, slot, candidate(slot))
    await stock.unlink(slot)
    assert isinstance(await stock.count(slot), Lost)
    await stock.unlink(slot)


async def test_server_ids_are_told_with_a_loss(rig: Rig, stock: Stock) -> None:
    reply = await stock.count(new_slot())
    assert isinstance(reply, Lost)
    assert reply.found == await stock.server_ids(new_slot())
    assert reply.found != ServerIds(run_id="", replid="")
