"""Random interleavings of all scripts on a real server, next to a model of the slot written for this test alone.

The model is a ledger: what each id was told, who holds what, what was granted. It shares no code with the double.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from service.adapters.memory.clock import ManualClock
from service.adapters.redis.client import RedisClient
from service.adapters.redis.keys import key
from service.adapters.redis.replies import record_of as unpacked
from service.adapters.redis.stock import RedisStock
from service.domain.batch import BatchMessage, Candidate
from service.domain.ids import BatchId, ReservationId
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
    Record,
    RecordState,
    Refusal,
    Reserved,
    SlotCount,
    TooFewLeft,
    Undecided,
    Won,
)
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import batch, candidate, load, new_slot, record_of

T = TypeVar("T")

pytestmark = [pytest.mark.server, pytest.mark.slow]

QUICK = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

BUYERS = ["anna", "ben", "cleo"]
LIMIT = 3
UNITS = 4
wishes = st.tuples(st.sampled_from(BUYERS), st.sampled_from("abcd"))
numbers = st.integers(min_value=0, max_value=99)
QUEUED, ORDERED, ENDED = RecordState.QUEUED, RecordState.ORDERED, RecordState.ENDED


@dataclass
class Ledger:
    """What must be true of a slot. `told` keeps the first answers of a batch: a replay may not contradict them."""

    available: int
    granted: int
    records: dict[ReservationId, Record] = field(default_factory=dict)
    told: dict[BatchId, dict[ReservationId, str]] = field(default_factory=dict)
    fences: set[BatchId] = field(default_factory=set)
    adjusted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def live(self) -> Iterator[Record]:
        return (it for it in self.records.values() if it.state is not ENDED)

    def held(self, buyer: str | None = None) -> int:
        return sum(it.quantity for it in self.live() if buyer in {None, it.buyer_id})

    def why_not(self, it: Candidate) -> str | None:
        if self.held(it.buyer_id) + it.quantity > LIMIT:
            return "limit_reached"
        return "segment_empty" if it.quantity > self.available else None

    def decide(self, message: BatchMessage, *, late: bool, past: bool) -> dict[ReservationId, str]:
        answers: dict[ReservationId, str] = {}
        for it in message.candidates:
            id_ = it.reservation_id
            if id_ in answers:
                continue
            no = "past_deadline" if past else self.why_not(it)
            answers[id_] = "known" if id_ in self.records else no or "won"
            if answers[id_] == "won":
                self.available -= it.quantity
                self.records[id_] = record_of(it, message)
            elif answers[id_] != "known" and late:
                self.records[id_] = record_of(it, message, ENDED)
        return answers

    def apply(self, id_: ReservationId, effect: Effect) -> bool:
        record = self.records[id_]
        wanted = ORDERED if effect is Effect.KEEP else ENDED
        if record.state is ENDED or (wanted is ORDERED and record.state is ORDERED):
            return False
        self.records[id_] = replace(record, state=wanted)
        if effect is Effect.RETURN:
            self.available += record.quantity
        elif effect is Effect.WRITE_OFF:
            self.granted -= record.quantity
        return True

    def undelivered(self) -> set[BatchId]:
        return {it.batch_id for it in self.records.values() if it.state is QUEUED} & self.told.keys()


def word(answer: object) -> str:
    match answer:
        case Won():
            return "won"
        case Known():
            return "known"
        case Undecided():
            return "undecided"
        case Refusal(no=no):
            return no.value
        case _:
            raise AssertionError(answer)


class SlotMachine(RuleBasedStateMachine):
    """One slot through its epochs; every reply is compared with the ledger."""

    server: RealServer

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.client = RedisClient(self.server.url)
        self.stock = RedisStock(self.client, self.clock)
        self.slot = new_slot()
        self.sent: list[BatchMessage] = []
        self.ledger = Ledger(available=UNITS, granted=UNITS)
        assert self.wait(load(self.stock, self.slot, UNITS)) == Loaded()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.wait(self.stock.close())
        self.loop.close()

    def hash(self, name: str) -> dict[bytes, bytes]:
        """Straight from the server: what the scripts stored, not what they say."""
        return dict(self.server.call("HGETALL", key(self.slot, name)))

    def candidates(self, wanted: list[tuple[str, str]]) -> list[Candidate]:
        """The same buyer and key always ask for the same: anything else is a misuse that is caught before Redis."""
        return [candidate(self.slot, who, key=key_, quantity=1 + (key_ == "d")) for who, key_ in wanted]

    def pick(self, number: int) -> BatchMessage:
        return self.sent[number % len(self.sent)]

    def some_id(self, number: int) -> ReservationId:
        who, key_ = BUYERS[number % 3], "abcd"[number // 3 % 4]
        return candidate(self.slot, who, key=key_).reservation_id

    # --- the scripts --------------------------------------------------------------------------------------------------

    @rule(wanted=st.lists(wishes, min_size=1, max_size=5))
    def peek(self, wanted: list[tuple[str, str]]) -> None:
        its = self.candidates(wanted)
        reply = self.wait(self.stock.peek(self.slot, its, LIMIT))
        assert isinstance(reply, Peeked)
        for it in its:
            known = it.reservation_id in self.ledger.records
            expected = "known" if known else self.ledger.why_not(it) or "undecided"
            assert word(reply.answers[it.reservation_id]) == expected
            self.check_details(reply.answers[it.reservation_id], it)

    @rule(wanted=st.lists(wishes, min_size=1, max_size=8, unique=True))
    def send(self, wanted: list[tuple[str, str]]) -> None:
        """A half message: its reserve call may come now, later, twice or after a check-back."""
        self.sent.append(batch(self.slot, *self.candidates(wanted)))

    @rule(wanted=st.lists(wishes, min_size=1, max_size=8, unique=True))
    def send_and_reserve(self, wanted: list[tuple[str, str]]) -> None:
        self.send(wanted)
        self.decide(self.sent[-1], None)

    @precondition(lambda self: self.sent)
    @rule(number=numbers, deadline=st.sampled_from([None, None, "ahead", "past"]))
    def reserve(self, number: int, deadline: str | None) -> None:
        self.decide(self.pick(number), deadline)

    def decide(self, message: BatchMessage, deadline: str | None) -> None:
        margin = {"ahead": 60_000, "past": -60_000}
        late = None if deadline is None else LateRules(deadline_ms=self.clock.now_ms() + margin[deadline])
        reply = self.wait(self.stock.reserve(self.slot, message, LIMIT, late))
        if message.batch_id in self.ledger.fences:
            records, ids = self.ledger.records, [it.reservation_id for it in message.candidates]
            assert reply == Fenced(known={id_: records[id_] for id_ in ids if id_ in records})
            return
        assert isinstance(reply, Reserved)
        assert reply.replayed == (message.batch_id in self.ledger.told)
        if not reply.replayed:
            answers = self.ledger.decide(message, late=late is not None, past=deadline == "past")
            self.ledger.told[message.batch_id] = answers
        assert {id_: word(answer) for id_, answer in reply.answers.items()} == self.ledger.told[message.batch_id]
        for it in message.candidates:
            self.check_details(reply.answers[it.reservation_id], it)

    def check_details(self, answer: object, it: Candidate) -> None:
        if isinstance(answer, Known):
            assert answer.record == self.ledger.records[it.reservation_id]
        if isinstance(answer, Refusal):
            assert answer.units_held == (self.ledger.held() > 0)
            live = [record for record in self.ledger.live() if record.buyer_id == it.buyer_id]
            newest = live[-1] if live and answer.no is No.LIMIT_REACHED else None
            assert answer.live == newest

    @precondition(lambda self: self.sent)
    @rule(number=numbers)
    def check_back(self, number: int) -> None:
        id_ = self.pick(number).batch_id
        reply = self.wait(self.stock.resolve(self.slot, id_))
        if id_ not in self.ledger.told:
            self.ledger.fences.add(id_)
            assert reply == FenceWritten()
            return
        won = {it for it, answer in self.ledger.told[id_].items() if answer == "won"}
        assert reply == BatchRecord(winners=frozenset(won))

    @precondition(lambda self: self.sent)
    @rule(number=numbers, effects=st.lists(st.sampled_from(Effect), min_size=8, max_size=8))
    def confirm(self, number: int, effects: list[Effect]) -> None:
        message = self.pick(number)
        told = self.ledger.told.get(message.batch_id, {})
        winners = [id_ for id_, answer in told.items() if answer == "won"]
        wanted = dict(zip(winners, effects, strict=False))
        changed = {id_ for id_, effect in wanted.items() if self.ledger.apply(id_, effect)}
        reply = self.wait(self.stock.confirm(self.slot, wanted))
        assert reply == Applied(changed=frozenset(changed))

    @rule(number=st.integers(min_value=0, max_value=11), effect=st.sampled_from([Effect.RETURN, Effect.WRITE_OFF]))
    def end(self, number: int, effect: Effect) -> None:
        id_ = self.some_id(number)
        reply = self.wait(self.stock.end(self.slot, {id_: effect}))
        if id_ in self.ledger.records:
            assert reply == Applied(changed=frozenset({id_} if self.ledger.apply(id_, effect) else ()))
            return
        assert reply == Applied(changed=frozenset({id_}))
        found = self.wait(self.stock.find(self.slot, [id_]))
        assert isinstance(found, dict)
        assert (found[id_].state, found[id_].quantity) == (ENDED, 0)
        self.ledger.records[id_] = found[id_]

    @rule(name=st.sampled_from("xyz"), delta=st.integers(min_value=-4, max_value=4))
    def adjust(self, name: str, delta: int) -> None:
        reply = self.wait(self.stock.adjust(self.slot, name, delta))
        if name in self.ledger.adjusted:
            assert reply == Adjusted()
        elif name in self.ledger.refused or self.ledger.available + delta < 0:
            self.ledger.refused.add(name)
            assert reply == TooFewLeft(available=self.ledger.available)
        else:
            assert reply == Adjusted()
            self.ledger.adjusted.add(name)
            self.ledger.available += delta
            self.ledger.granted += delta

    @rule(repeat=st.booleans())
    def load_a_new_epoch(self, repeat: bool) -> None:
        """What the loader does: live ids become orders, ended ones stay ended, the older epoch is unlinked."""
        old, self.slot = self.slot, replace(self.slot, epoch=self.slot.epoch + 1)
        records = [replace(it, state=ENDED if it.state is ENDED else ORDERED) for it in self.ledger.records.values()]
        before = self.ledger
        self.ledger = Ledger(available=before.available, granted=before.available + before.held())
        self.ledger.records = {it.reservation_id: it for it in records}
        server = self.wait(self.stock.server_ids(self.slot))
        if repeat:
            self.wait(self.stock.load_records(self.slot, server, records[: len(records) // 2]))
        assert self.wait(load(self.stock, self.slot, before.available, records=records)) == Loaded()
        self.wait(self.stock.unlink(old))
        assert isinstance(self.wait(self.stock.count(old)), Lost)

    @rule(wrong=st.booleans())
    def load_too_late_or_elsewhere(self, wrong: bool) -> None:
        server = self.wait(self.stock.server_ids(self.slot))
        named = ServerIds(run_id="0" * 40, replid=server.replid) if wrong else server
        refusal = LoadRefused(found=server, stamped=True)
        reply = self.wait(self.stock.load_stock(self.slot, named, available=99, buyer_units={}, held=0))
        assert reply == refusal
        stranger = record_of(candidate(self.slot, "zoe"), batch(self.slot))
        assert self.wait(self.stock.load_records(self.slot, named, [stranger])) == refusal

    # --- what must hold after every step ------------------------------------------------------------------------------

    @invariant()
    def the_slot_balances(self) -> None:
        """I1 and I2: every counter is what the ledger says, and none is negative."""
        ledger = self.ledger
        units = {
            state: sum(it.quantity for it in ledger.records.values() if it.state is state) for state in RecordState
        }
        assert self.wait(self.stock.count(self.slot)) == SlotCount(
            granted=ledger.granted,
            available=ledger.available,
            held=ledger.held(),
            queued=units[QUEUED],
            ordered=units[ORDERED],
            buyers_units=ledger.held(),
            undelivered_batches=len(ledger.undelivered()),
        )
        assert ledger.granted == ledger.available + ledger.held()
        assert ledger.available >= 0

    @invariant()
    def no_buyer_is_over_the_limit(self) -> None:
        """I3, from the buyers' own hash: what each holds is what his live records say, and nobody else is in it."""
        held: dict[str, list[object]] = {}
        for it in self.ledger.live():
            units = held.setdefault(it.buyer_id, [0])
            units[0] = self.ledger.held(it.buyer_id)
            units.append(it.reservation_id.partition(".")[2])
        stored = self.hash("buyers")
        assert {name.decode(): msgspec.msgpack.decode(packed) for name, packed in stored.items()} == held
        assert all(self.ledger.held(buyer) <= LIMIT for buyer in BUYERS)

    @invariant()
    def every_record_is_what_the_ledger_says(self) -> None:
        stored = self.hash("records")
        ids = {ReservationId(f"{self.slot.sale_id}.{name.decode()}"): packed for name, packed in stored.items()}
        assert {id_: unpacked(id_, packed) for id_, packed in ids.items()} == self.ledger.records

    @invariant()
    def undelivered_batches_have_their_bodies(self) -> None:
        found = self.wait(self.stock.undelivered(self.slot, self.clock.now_ms() + 3_600_000, 99))
        assert isinstance(found, Batches)
        sent = {message.batch_id: message for message in self.sent}
        assert {id_: stored.message for id_, stored in found.found.items()} == {
            id_: sent[id_] for id_ in self.ledger.undelivered()
        }


@pytest.mark.timeout(180)
@pytest.mark.parametrize("flavour", ["valkey", "redis"])
def test_any_interleaving_keeps_the_books(request: pytest.FixtureRequest, flavour: str) -> None:
    server: RealServer = request.getfixturevalue(f"{flavour}_server")
    machine = type("SlotMachineHere", (SlotMachine,), {"server": server})
    run_state_machine_as_test(machine, settings=QUICK)
