"""What ports.orders promises of a SaleStore: the road of authority, the lease, the snapshot; on every database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import delete, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import rows, sale_view, schema, tables, transactions
from service.adapters.sql.database import Database
from service.adapters.sql.rows import AnyRow
from service.domain.errors import Conflict, InvalidRequest, InvariantBroken, NotFound
from service.domain.ids import SaleId
from service.domain.order import Order, Owed, cancel
from service.domain.reservation import Reason, Status
from service.domain.sale import AUTHORITY_TRANSITIONS, Authority, Sale, SaleRules, SaleStatus, ServerIds
from service.domain.stock import Effect, RecordState
from service.ports.orders import LEADER_LEASE, Adjustment, ApiKey, SaleTransaction, StockMovement
from tests.fixtures.sql import (
    LEADER,
    LEASE_MS,
    NOW,
    SALE,
    Stores,
    claim,
    decide,
    drive,
    give_back,
    id_of,
    lead,
    problems,
    rules,
    sale_now,
    sell,
    sold,
    stores_on,
)

OTHER = SaleId("sneaker-02")
WELL = ServerIds(run_id="r" * 40, replid="p" * 40)
PATHS = {
    Authority.SQL: (),
    Authority.LOADING: (Authority.LOADING,),
    Authority.REDIS: (Authority.LOADING, Authority.REDIS),
}


@pytest.fixture(autouse=True)
async def _a_sale(stores: Stores) -> None:
    await stores.sales.create(SALE, rules(), NOW)


# --- sales ------------------------------------------------------------------------------------------------------------


async def test_a_new_sale_is_a_draft_under_sql_with_all_its_stock(stores: Stores) -> None:
    sale = await sale_now(stores)
    assert (sale.status, sale.authority, sale.epoch) == (SaleStatus.DRAFT, Authority.SQL, 1)
    assert (sale.initial, sale.available, sale.adjusted) == (10, 10, 0)
    assert (sale.rules, sale.lost, sale.older_deadline_ms) == (rules(), None, None)
    assert await problems(stores) == ()


async def test_a_sale_is_created_once(stores: Stores) -> None:
    again = await stores.sales.create(SALE, rules(), NOW + 5)
    assert again.created_at_ms == NOW
    with pytest.raises(Conflict):
        await stores.sales.create(SALE, rules(stock=11), NOW)
    assert await problems(stores) == ()


async def test_a_sale_created_by_two_processes_at_once_has_its_stock_once(rivals: tuple[Stores, Stores]) -> None:
    made = await asyncio.gather(*(rivals[n % 2].sales.create(OTHER, rules(), NOW) for n in range(6)))
    assert len({sale.id for sale in made}) == 1
    assert await problems(rivals[0], OTHER) == ()


async def test_sales_come_with_the_settled_ones_last(stores: Stores) -> None:
    ids = [SaleId(f"s-{n}") for n in range(3)]
    for n, sale_id in enumerate(ids):
        await stores.sales.create(sale_id, rules(), NOW + n)
    for sale_id in (ids[2], ids[0]):
        await stores.sales.set_status(sale_id, SaleStatus.DRAFT, SaleStatus.SETTLED, NOW + 10)
    found = [sale.id for sale in await stores.sales.sales()]
    assert set(found[:2]) == {SALE, ids[1]}
    assert set(found[2:]) == {ids[0], ids[2]}


async def test_a_view_shows_at_once_what_was_settled_elsewhere_and_reads_its_row_once(
    rivals: tuple[Stores, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = rivals
    await elsewhere.sales.create(OTHER, rules(), NOW)
    assert [sale.status for sale in await here.sales.view()] == [SaleStatus.DRAFT, SaleStatus.DRAFT]
    await elsewhere.sales.set_status(OTHER, SaleStatus.DRAFT, SaleStatus.SETTLED, NOW + 10)
    read: list[SaleId] = []

    def sale_of_row(row: AnyRow) -> Sale:
        read.append(row.id)
        return rows.sale_of_row(row)

    monkeypatch.setattr(sale_view, "sale_of_row", sale_of_row)
    for _ in range(3):
        found = [(sale.id, sale.status) for sale in await here.sales.view()]
        assert found == [(SALE, SaleStatus.DRAFT), (OTHER, SaleStatus.SETTLED)]
    assert read.count(OTHER) == 1


async def test_a_view_finds_what_it_never_saw_alive_and_forgets_what_is_gone(
    rivals: tuple[Stores, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = rivals
    await here.sales.view()
    await elsewhere.sales.create(OTHER, rules(), NOW)
    await elsewhere.sales.set_status(OTHER, SaleStatus.DRAFT, SaleStatus.SETTLED, NOW + 10)
    assert [sale.id for sale in await here.sales.view()] == [SALE]
    monkeypatch.setattr(sale_view, "SETTLED_EVERY_S", 0.0)
    assert [sale.id for sale in await here.sales.view()] == [SALE, OTHER]

    async def gone(connection: AsyncConnection) -> None:
        await connection.execute(delete(tables.stock_movements).where(tables.stock_movements.c.sale_id == OTHER))
        await connection.execute(delete(tables.sales).where(tables.sales.c.id == OTHER))

    await transactions.write(elsewhere.database, gone)
    assert [sale.id for sale in await here.sales.view()] == [SALE]


async def test_a_view_shows_at_once_that_a_settled_sale_has_left_redis(rivals: tuple[Stores, Stores]) -> None:
    """Else a sweep would ask for slots that are gone, and report them lost, for ever."""
    here, elsewhere = rivals
    await drive(elsewhere, Authority.LOADING, Authority.REDIS)
    await here.sales.view()
    await elsewhere.sales.set_status(SALE, SaleStatus.DRAFT, SaleStatus.SETTLED, NOW + 10)
    assert [sale.authority for sale in await here.sales.view()] == [Authority.REDIS]
    left = await drive(elsewhere, Authority.SQL)
    for _ in range(2):
        assert list(await here.sales.view()) == [left]


async def test_a_status_changes_only_from_what_was_seen(stores: Stores) -> None:
    set_status = stores.sales.set_status
    assert await set_status(SALE, SaleStatus.DRAFT, SaleStatus.READY, NOW)
    assert not await set_status(SALE, SaleStatus.DRAFT, SaleStatus.READY, NOW)
    assert await set_status(SALE, SaleStatus.READY, SaleStatus.READY, NOW)
    assert (await sale_now(stores)).status is SaleStatus.READY
    with pytest.raises(NotFound):
        await set_status(OTHER, SaleStatus.DRAFT, SaleStatus.READY, NOW)


async def test_opening_under_redis_says_that_the_epoch_may_have_sold_before_it_can(stores: Stores) -> None:
    await drive(stores, Authority.LOADING, Authority.REDIS)
    assert not (await sale_now(stores)).sold_in_epoch
    await stores.sales.set_status(SALE, SaleStatus.DRAFT, SaleStatus.OPEN, NOW)
    assert (await sale_now(stores)).sold_in_epoch


async def test_rules_change_but_stock_only_by_an_adjustment(stores: Stores) -> None:
    changed = await stores.sales.change_rules(SALE, lambda _: rules(limit=3, segments=4), NOW)
    sale = await sale_now(stores)
    assert (sale.rules.limit_per_buyer, sale.rules.segments, sale.segments) == (3, 4, 1)
    assert changed == sale
    with pytest.raises(InvalidRequest):
        await stores.sales.change_rules(SALE, lambda _: rules(stock=11), NOW)
    with pytest.raises(NotFound):
        await stores.sales.change_rules(OTHER, lambda _: rules(), NOW)


async def test_of_two_changes_of_the_rules_at_a_time_none_is_lost(rivals: tuple[Stores, Stores]) -> None:
    first, second = rivals
    await first.sales.create(OTHER, rules(), NOW)
    changes = [
        stores.sales.change_rules(OTHER, partial(_with_rule, field, value), NOW)
        for stores, field, value in ((first, "price", 1), (second, "payment_window_s", 77), (first, "sku", "other"))
    ]
    await asyncio.gather(*changes)
    found = (await sale_now(first, OTHER)).rules
    assert (found.price, found.payment_window_s, found.sku) == (1, 77, "other")


def _with_rule(field: str, value: object, sale: Sale) -> SaleRules:
    return replace(sale.rules, **{field: value})  # type: ignore[arg-type]


async def test_a_change_of_rules_that_refuses_changes_nothing(stores: Stores) -> None:
    def refuse(sale: Sale) -> SaleRules:
        raise InvalidRequest("price", "is fixed")

    with pytest.raises(InvalidRequest, match="fixed"):
        await stores.sales.change_rules(SALE, refuse, NOW)
    assert (await sale_now(stores)).rules == rules()


async def test_warm_is_remembered(stores: Stores) -> None:
    assert not (await sale_now(stores)).wants_redis
    await stores.sales.want_redis(SALE)
    assert (await sale_now(stores)).wants_redis


# --- the road of authority --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "to"), AUTHORITY_TRANSITIONS)
async def test_the_epoch_grows_as_the_table_says(stores: Stores, before: Authority, to: Authority) -> None:
    seen = await drive(stores, *PATHS[before])
    arrived = await drive(stores, to, now_ms=NOW + 7)

    growth = AUTHORITY_TRANSITIONS[before, to]
    assert (arrived.authority, arrived.epoch) == (to, seen.epoch + growth)
    assert arrived.epoch_started_at_ms == (NOW + 7 if growth else NOW)
    deadlines = await _deadlines(stores, seen.epoch)
    assert deadlines == ({seen.epoch: NOW + 600_007} if growth else {})
    assert await sale_now(stores) == arrived


@pytest.mark.parametrize(
    ("before", "to"),
    [(a, b) for a in Authority for b in Authority if (a, b) not in AUTHORITY_TRANSITIONS],
)
async def test_there_is_no_other_road(stores: Stores, before: Authority, to: Authority) -> None:
    seen = await drive(stores, *PATHS[before])
    with pytest.raises(InvariantBroken):
        await drive(stores, to)
    assert await sale_now(stores) == seen


async def test_only_who_holds_the_lease_changes_the_authority(stores: Stores) -> None:
    async def change(leader: str, now_ms: int) -> object:
        return await stores.sales.change_authority(
            SALE, leader=leader, expected=(Authority.SQL, 1), to=Authority.LOADING, now_ms=now_ms
        )

    assert await change(LEADER, NOW) is None
    await lead(stores)
    assert await change("keeper-2", NOW) is None
    assert await change(LEADER, NOW + LEASE_MS) is None, "an expired lease leads nobody"
    assert await change(LEADER, NOW + LEASE_MS - 1) is not None


async def test_a_change_of_authority_has_one_winner(rivals: tuple[Stores, Stores]) -> None:
    await lead(rivals[0])

    async def change(stores: Stores) -> bool:
        changed = await stores.sales.change_authority(
            SALE, leader=LEADER, expected=(Authority.SQL, 1), to=Authority.LOADING, now_ms=NOW
        )
        return changed is not None

    assert sum(await asyncio.gather(*(change(rivals[n % 2]) for n in range(8)))) == 1
    assert (await sale_now(rivals[0])).epoch == 2


async def test_leaving_redis_after_it_sold_leaves_a_deadline_for_what_is_under_way(stores: Stores) -> None:
    await stores.sales.set_status(SALE, SaleStatus.DRAFT, SaleStatus.OPEN, NOW)
    arrived = await drive(stores, Authority.LOADING, Authority.REDIS)
    assert arrived.sold_in_epoch

    left = await drive(stores, Authority.SQL, now_ms=NOW + 1_000)
    assert (left.older_deadline_ms, left.sold_in_epoch) == (NOW + 601_000, False)
    again = await drive(stores, Authority.LOADING)
    assert again.older_deadline_ms == NOW + 601_000, "it is not forgotten on the way back"


async def test_leaving_redis_that_never_sold_leaves_no_deadline(stores: Stores) -> None:
    left = await drive(stores, Authority.LOADING, Authority.REDIS, Authority.SQL)
    assert left.older_deadline_ms is None


async def test_a_later_shorter_deadline_does_not_cut_an_earlier_one(stores: Stores) -> None:
    await stores.sales.set_status(SALE, SaleStatus.DRAFT, SaleStatus.OPEN, NOW)
    await drive(stores, Authority.LOADING, Authority.REDIS, Authority.SQL)
    await stores.sales.change_rules(SALE, lambda _: rules(queue_deadline_s=1), NOW)
    left = await drive(stores, Authority.LOADING, Authority.REDIS, Authority.SQL)
    assert left.older_deadline_ms == NOW + 600_000
    await stores.sales.change_rules(SALE, lambda _: rules(queue_deadline_s=9_000), NOW)
    assert await _deadlines(stores, 2, 4) == {2: NOW + 600_000, 4: NOW + 1_000}, "an epoch that ended keeps its own"
    assert (await sale_now(stores)).older_deadline_ms == NOW + 600_000


async def test_the_segment_count_belongs_to_the_epoch(stores: Stores) -> None:
    await drive(stores, Authority.LOADING, Authority.REDIS)
    await stores.sales.change_rules(SALE, lambda _: rules(segments=4), NOW)
    assert (await sale_now(stores)).segments == 1
    assert (await drive(stores, Authority.SQL)).segments == 1
    assert (await drive(stores, Authority.LOADING)).segments == 4


# --- reports of loss --------------------------------------------------------------------------------------------------


async def test_a_loss_is_sticky_and_the_first_report_counts(rivals: tuple[Stores, Stores]) -> None:
    await drive(rivals[0], Authority.LOADING, Authority.REDIS)
    other = replace(WELL, run_id="x" * 40)
    reports = [rivals[n % 2].sales.report_lost(SALE, 2, (WELL, other)[n % 2], NOW + n) for n in range(6)]
    assert sum(await asyncio.gather(*reports)) == 1

    sale = await sale_now(rivals[0])
    assert sale.lost in {WELL, other}
    assert sale.lost_at_ms is not None


@pytest.mark.parametrize("path", [(), (Authority.LOADING,)])
async def test_a_loss_means_something_only_while_redis_decides(stores: Stores, path: tuple[Authority, ...]) -> None:
    sale = await drive(stores, *path)
    assert not await stores.sales.report_lost(SALE, sale.epoch, WELL, NOW)
    assert (await sale_now(stores)).lost is None


async def test_a_late_report_of_an_older_epoch_shuts_nothing(stores: Stores) -> None:
    path = (Authority.LOADING, Authority.REDIS)
    sale = await drive(stores, *path, Authority.SQL, *path)
    assert not await stores.sales.report_lost(SALE, sale.epoch - 1, WELL, NOW)
    assert (await sale_now(stores)).lost is None


async def test_the_way_to_sql_clears_the_report_and_a_misrouted_one_is_dismissed(stores: Stores) -> None:
    path = (Authority.LOADING, Authority.REDIS)
    await drive(stores, *path)
    await stores.sales.report_lost(SALE, 2, WELL, NOW)
    await stores.sales.dismiss_lost(SALE, 1)
    assert (await sale_now(stores)).lost == WELL
    await stores.sales.dismiss_lost(SALE, 2)
    assert (await sale_now(stores)).lost is None

    await stores.sales.report_lost(SALE, 2, WELL, NOW)
    left = await drive(stores, Authority.SQL)
    assert (left.lost, left.lost_at_ms) == (None, None)


# --- the snapshot -----------------------------------------------------------------------------------------------------


async def test_a_snapshot_has_all_that_a_slot_must_know(stores: Stores) -> None:
    awaiting, cancelled = await sold(stores, "anna"), await sold(stores, "bert")
    await _cancel(stores, cancelled)
    await sell(stores, [claim("carl", deadline_ms=NOW)])
    kept = await _refunded(stores, await sold(stores, "dora"), restock=False)
    back = await _refunded(stores, await sold(stores, "emil"), restock=True)
    sale = await drive(stores, Authority.LOADING)

    snapshot = await stores.sales.snapshot(SALE, sale.epoch)

    assert snapshot is not None
    assert snapshot.available == 8
    held = {record.buyer_id: record.quantity for record in snapshot.records if record.state is RecordState.ORDERED}
    assert held == {awaiting.buyer_id: 1, kept.buyer_id: 1}
    assert snapshot.available + sum(held.values()) == sale.capacity
    states = {record.reservation_id: record.state for record in snapshot.records}
    ended = [cancelled.id, id_of("carl"), back.id]
    assert states == {
        awaiting.id: RecordState.ORDERED,
        kept.id: RecordState.ORDERED,
        **dict.fromkeys(ended, RecordState.ENDED),
    }
    (record,) = [record for record in snapshot.records if record.reservation_id == awaiting.id]
    assert (record.batch_id, record.fingerprint) == (awaiting.batch_id, awaiting.fingerprint)


async def test_a_snapshot_is_only_for_the_load_it_was_asked_for(stores: Stores) -> None:
    assert await stores.sales.snapshot(SALE, 1) is None
    await drive(stores, Authority.LOADING)
    assert await stores.sales.snapshot(SALE, 1) is None
    assert await stores.sales.snapshot(SALE, 2) is not None
    await drive(stores, Authority.LOADING)
    assert await stores.sales.snapshot(SALE, 2) is None
    assert await stores.sales.snapshot(OTHER, 2) is None


async def test_a_snapshot_settles_what_older_epochs_owed_and_nothing_else(stores: Stores) -> None:
    await stores.sales.create(OTHER, rules(), NOW)
    await drive(stores, Authority.LOADING, Authority.REDIS)
    await drive(stores, Authority.LOADING, Authority.REDIS, sale_id=OTHER)
    mine = Owed(reservation_id=id_of("anna"), sale_id=SALE, segment=0, epoch=2, effect=Effect.RETURN)
    others = replace(mine, sale_id=OTHER, reservation_id=id_of("anna", sale_id=OTHER))
    increase = Adjustment(id="adj-1", sale_id=SALE, delta=5, applied=True, owed_epoch=2)

    async def work(transaction: SaleTransaction) -> None:
        await transaction.owe([mine, others])
        await transaction.put_adjustment(increase, NOW)
        await transaction.move_stock([StockMovement(key="a", sale_id=SALE, kind="adjust", delta=5, at_ms=NOW)])

    await stores.orders.transact([SALE, OTHER], work)
    loading = await drive(stores, Authority.SQL, Authority.LOADING)
    snapshot = await stores.sales.snapshot(SALE, loading.epoch)
    await drive(stores, Authority.REDIS)

    assert snapshot is not None
    assert snapshot.available == 15
    assert await stores.orders.owed(9) == [others]
    assert await stores.orders.unfinished_adjustments(NOW + 1, 9) == []


async def test_a_snapshot_settles_what_its_own_epoch_owed_before_it(stores: Stores) -> None:
    """Committed while loading, before the snapshot: the snapshot has it, so Redis must not get it again."""
    loading = await drive(stores, Authority.LOADING)
    owed = Owed(reservation_id=id_of("anna"), sale_id=SALE, segment=0, epoch=loading.epoch, effect=Effect.RETURN)
    increase = Adjustment(id="adj-1", sale_id=SALE, delta=5, applied=True, owed_epoch=loading.epoch)

    async def work(transaction: SaleTransaction) -> None:
        await transaction.owe([owed])
        await transaction.put_adjustment(increase, NOW)
        await transaction.move_stock([StockMovement(key="a", sale_id=SALE, kind="adjust", delta=5, at_ms=NOW)])

    await stores.orders.transact([SALE], work)
    snapshot = await stores.sales.snapshot(SALE, loading.epoch)
    await drive(stores, Authority.REDIS)

    assert snapshot is not None
    assert snapshot.available == 15
    assert await stores.orders.owed(9) == []
    assert await stores.orders.unfinished_adjustments(NOW + 1, 9) == []


async def test_a_snapshot_sees_an_order_transaction_whole_or_not_at_all(rivals: tuple[Stores, Stores]) -> None:
    paused, resume = asyncio.Event(), asyncio.Event()
    await drive(rivals[0], Authority.LOADING)

    async def slow(transaction: SaleTransaction) -> None:
        await decide(transaction, [claim("anna")])
        paused.set()
        await resume.wait()
        await decide(transaction, [claim("bert")])

    selling = asyncio.create_task(rivals[0].orders.transact([SALE], slow))
    await paused.wait()
    reading = asyncio.create_task(rivals[1].sales.snapshot(SALE, 2))
    # SQLite lets nobody begin to write, InnoDB holds the row: neither can have an answer yet
    done, _ = await asyncio.wait([reading], timeout=0.05)
    assert not done
    resume.set()
    await selling

    snapshot = await reading
    assert snapshot is not None
    assert (snapshot.available, len(snapshot.records)) == (8, 2)


# --- the lease --------------------------------------------------------------------------------------------------------


async def test_a_lease_has_one_owner_until_it_ends(stores: Stores) -> None:
    acquire = stores.sales.acquire_lease
    assert await acquire(LEADER_LEASE, "a", NOW, 1_000)
    assert not await acquire(LEADER_LEASE, "b", NOW + 999, 1_000)
    assert await acquire(LEADER_LEASE, "a", NOW + 999, 1_000), "renewed"
    assert not await acquire(LEADER_LEASE, "b", NOW + 1_998, 1_000)
    assert await acquire(LEADER_LEASE, "b", NOW + 1_999, 1_000)
    assert not await acquire(LEADER_LEASE, "a", NOW + 2_000, 1_000)
    assert await acquire("another", "a", NOW, 1_000)


async def test_renewing_a_lease_in_the_same_millisecond_keeps_it(stores: Stores) -> None:
    assert [await stores.sales.acquire_lease(LEADER_LEASE, "a", NOW, 9) for _ in range(3)] == [True] * 3


async def test_a_lease_is_released_only_by_its_owner(stores: Stores) -> None:
    await stores.sales.acquire_lease(LEADER_LEASE, "a", NOW, 1_000)
    await stores.sales.release_lease(LEADER_LEASE, "b")
    assert not await stores.sales.acquire_lease(LEADER_LEASE, "b", NOW, 1_000)
    await stores.sales.release_lease(LEADER_LEASE, "a")
    assert await stores.sales.acquire_lease(LEADER_LEASE, "b", NOW, 1_000)


async def test_of_many_that_want_the_lease_at_once_one_gets_it(rivals: tuple[Stores, Stores]) -> None:
    wanted = [rivals[n % 2].sales.acquire_lease(LEADER_LEASE, f"keeper-{n}", NOW, 1_000) for n in range(10)]
    assert sum(await asyncio.gather(*wanted)) == 1


# --- keys and schema --------------------------------------------------------------------------------------------------


async def test_a_key_is_stored_once(stores: Stores) -> None:
    key = ApiKey(id="k1", hash="ab" * 32, role="storefront", created_at_ms=NOW)
    await stores.sales.add_key(key)
    assert await stores.sales.keys() == [key]
    with pytest.raises(InvariantBroken):
        await stores.sales.add_key(replace(key, id="k2"))


async def test_a_revoked_key_is_gone_and_the_audit_says_by_whom(stores: Stores) -> None:
    for name in ("k1", "k2"):
        await stores.sales.add_key(ApiKey(id=name, hash=name * 32, role="operator", created_at_ms=NOW))
    assert await stores.sales.revoke_key("k1", "cli:anna", NOW)
    assert [key.id for key in await stores.sales.keys()] == ["k2"]
    assert not await stores.sales.revoke_key("k1", "cli:anna", NOW)
    assert not await stores.sales.revoke_key("K2", "cli:anna", NOW)
    rows = await transactions.read_rows(stores.database, select(tables.audit))
    assert [(row.actor, row.act, row.subject, row.detail) for row in rows] == [
        ("cli:anna", "revoke_key", "k1", '{"role":"operator"}')
    ]


async def test_a_migrated_database_has_no_schema_problem(stores: Stores) -> None:
    assert await stores.sales.schema_problem() is None


async def test_a_database_that_lacks_a_migration_says_so_with_the_remedy(stores: Stores) -> None:
    await _set_revision(stores.database, "0000")
    try:
        problem = await stores.sales.schema_problem()
    finally:
        await _set_revision(stores.database, schema.head())
    assert problem is not None
    assert "dropgate migrate" in problem


async def test_a_database_of_a_newer_release_is_right_for_this_one(stores: Stores) -> None:
    await _set_revision(stores.database, "9999")
    try:
        assert await stores.sales.schema_problem() is None
    finally:
        await _set_revision(stores.database, schema.head())


async def test_a_file_without_tables_says_what_to_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = stores_on(f"sqlite:///{tmp_path_factory.mktemp('empty') / 'new.db'}")
    problem = await empty.sales.schema_problem()
    await empty.database.close()
    assert problem == "The database has no Dropgate tables: run `dropgate migrate`."


# --- helpers ----------------------------------------------------------------------------------------------------------


async def _deadlines(stores: Stores, *epochs: int) -> dict[int, int]:
    found = {epoch: await stores.orders.epoch_deadline_ms(SALE, epoch) for epoch in epochs}
    return {epoch: deadline_ms for epoch, deadline_ms in found.items() if deadline_ms is not None}


async def _cancel(stores: Stores, order: Order) -> None:
    cancelled = cancel(order, Reason.BUYER_CANCELLED)
    assert isinstance(cancelled, Order)

    async def work(transaction: SaleTransaction) -> None:
        assert await transaction.replace_order(cancelled, expected=Status.AWAITING_PAYMENT)
        await give_back(transaction, order, "cancel")

    await stores.orders.transact([SALE], work)


async def _refunded(stores: Stores, order: Order, *, restock: bool) -> Order:
    refunded = replace(order, status=Status.REFUNDED, restocked=restock)

    async def work(transaction: SaleTransaction) -> None:
        assert await transaction.replace_order(refunded, expected=Status.AWAITING_PAYMENT)
        if restock:
            await give_back(transaction, order, "refund")

    await stores.orders.transact([SALE], work)
    return refunded


async def _set_revision(database: Database, revision: str) -> None:
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :new"), {"new": revision})
        await connection.commit()
