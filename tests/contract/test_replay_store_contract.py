"""What the memory of replays promises: nothing acted on without a trace, and a message for one replay at a time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from service.adapters.sql import tables, transactions
from service.adapters.sql.replays import SqlReplayStore
from service.domain.ids import BatchId, ReservationId, SaleId
from service.domain.replay import (
    CLAIM_MS,
    Absence,
    Item,
    Now,
    Outcome,
    Replay,
    ReplayId,
    Scope,
    Source,
    new_replay_id,
)
from service.domain.reservation import Status
from tests.fixtures.sql import NOW, Stores

ANNA = ReservationId("sneaker-01.anna")
SCOPE = Scope(
    source=Source.DISCARDED,
    sale_id=SaleId("sneaker-01"),
    reservation_ids=(ANNA,),
    batch_ids=(BatchId("a"), BatchId("A")),
    older_than_s=60,
)
MESSAGE = Item(
    outcome=Outcome.PLANNED,
    why="1 reservation hält ✓ \\ '",
    message_id="m-1",
    batch_id=BatchId("a"),
    sale_id=SaleId("sneaker-01"),
    epoch=3,
    born_at_ms=NOW,
    reservations=(Now(reservation_id=ANNA, standing=Absence.IN_DOUBT),),
)
REFUSED = Item(outcome=Outcome.REFUSED, why="It cannot be read.", message_id="m-2")


@pytest.fixture
def store(stores: Stores) -> SqlReplayStore:
    return SqlReplayStore(stores.database)


def a_replay(*items: Item, scope: Scope = SCOPE) -> Replay:
    return Replay(
        id=new_replay_id(),
        scope=scope,
        why="the API was down",
        actor="anna",
        created_at_ms=NOW,
        more=True,
        items=items,
    )


def id_of(replay: Replay) -> ReplayId:
    assert replay.id is not None
    return replay.id


async def found(store: SqlReplayStore, replay: Replay) -> Replay:
    stored = await store.replay(id_of(replay))
    assert stored is not None
    return stored


async def audits(stores: Stores) -> list[Any]:
    return list(await transactions.read_rows(stores.database, select(tables.audit).order_by(tables.audit.c.seq)))


async def test_a_replay_comes_back_as_it_was_written_before_its_first_act(store: SqlReplayStore) -> None:
    replay = a_replay(MESSAGE, REFUSED)
    await store.create(replay)
    assert await found(store, replay) == replay
    assert await store.replay(new_replay_id()) is None


async def test_a_replay_of_everything_that_found_nothing_is_stored_too(store: SqlReplayStore) -> None:
    replay = a_replay(scope=Scope(source=Source.IN_DOUBT))
    await store.create(replay)
    await store.finish(id_of(replay), NOW + 5)
    assert await found(store, replay) == replace(replay, finished_at_ms=NOW + 5)


async def test_statuses_are_not_stored_as_they_change(store: SqlReplayStore) -> None:
    paid = replace(MESSAGE, reservations=(Now(reservation_id=ANNA, standing=Status.PAID),))
    replay = a_replay(paid)
    await store.create(replay)
    assert (await found(store, replay)).items == (MESSAGE,)


async def test_what_is_begun_says_so_until_it_ends_and_the_audit_names_who_and_why(
    stores: Stores, store: SqlReplayStore
) -> None:
    replay = a_replay(REFUSED, MESSAGE)
    await store.create(replay)
    begun = replace(MESSAGE, outcome=Outcome.PENDING, why="begun")
    assert await store.begin(replay, 1, begun, NOW + 1, claims=True) is None
    assert (await found(store, replay)).items == (REFUSED, begun)
    (row,) = await audits(stores)
    assert (row.actor, row.act, row.subject, row.why, row.at_ms) == ("anna", "replay", "a", replay.why, NOW + 1)
    assert json.loads(row.detail) == {
        "replay": replay.id,
        "source": "discarded",
        "sale": "sneaker-01",
        "batch": "a",
        "message": "m-1",
    }
    ended = replace(MESSAGE, outcome=Outcome.ORDERED, why="ended")
    await store.end(id_of(replay), 1, ended, NOW + 2)
    assert (await found(store, replay)).items == (REFUSED, ended)


async def test_a_message_is_one_replays_for_ten_minutes(stores: Stores, store: SqlReplayStore) -> None:
    first, second = a_replay(MESSAGE), a_replay(MESSAGE)
    for replay in (first, second):
        await store.create(replay)
    assert await store.begin(first, 0, MESSAGE, NOW, claims=True) is None
    late = NOW + CLAIM_MS - 1
    assert await store.begin(second, 0, replace(MESSAGE, why="begun"), late, claims=True) == first.id
    assert (await found(store, second)).items == (MESSAGE,), "nothing was written"
    assert len(await audits(stores)) == 1
    assert await store.claims(["m-1", "m-2"], late) == {"m-1": first.id}
    assert await store.claims(["m-1"], late + 1) == {}
    assert await store.begin(second, 0, MESSAGE, late + 1, claims=True) is None
    assert await store.claims(["m-1"], late + 1) == {"m-1": second.id}


async def test_a_message_that_was_refused_to_a_replay_is_free_for_others(store: SqlReplayStore) -> None:
    first, second = a_replay(MESSAGE), a_replay(MESSAGE)
    for replay in (first, second):
        await store.create(replay)
    assert await store.begin(first, 0, MESSAGE, NOW, claims=True) is None
    waiting, pending = (replace(MESSAGE, outcome=it) for it in (Outcome.WAITING, Outcome.PENDING))
    await store.end(id_of(second), 0, waiting, NOW)
    await store.end(id_of(first), 0, pending, NOW)
    assert await store.claims(["m-1"], NOW) == {"m-1": first.id}, "only its own, and only where nothing was done"
    await store.end(id_of(first), 0, waiting, NOW)
    assert await store.begin(second, 0, MESSAGE, NOW, claims=True) is None


async def test_claims_that_are_past_go_with_the_next_one_that_is_past(stores: Stores, store: SqlReplayStore) -> None:
    replay = a_replay(MESSAGE, replace(MESSAGE, message_id="m-2"), replace(MESSAGE, message_id="m-3"))
    await store.create(replay)
    for position, item in enumerate(replay.items):
        await store.begin(replay, position, item, NOW + position * CLAIM_MS, claims=True)
    rows = await transactions.read_rows(stores.database, select(tables.replay_claims.c.message_id))
    assert {row.message_id for row in rows} == {"m-3"}


async def test_a_batch_is_nobodys_own(store: SqlReplayStore) -> None:
    first, second = a_replay(MESSAGE), a_replay(MESSAGE)
    for replay in (first, second):
        await store.create(replay)
        assert await store.begin(replay, 0, MESSAGE, NOW, claims=False) is None
    assert await store.claims(["m-1"], NOW) == {}


async def test_of_many_replays_at_once_one_has_the_message(rivals: tuple[Stores, Stores]) -> None:
    both = [SqlReplayStore(stores.database) for stores in rivals]
    replays = [a_replay(MESSAGE) for _ in range(10)]
    for replay in replays:
        await both[0].create(replay)
    for at_ms in (NOW, NOW + CLAIM_MS):
        answers = await asyncio.gather(
            *[both[n % 2].begin(replay, 0, MESSAGE, at_ms, claims=True) for n, replay in enumerate(replays)]
        )
        (winner,) = [replay.id for replay, holder in zip(replays, answers, strict=True) if holder is None]
        assert {holder for holder in answers if holder is not None} == {winner}
