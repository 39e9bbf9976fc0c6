"""The memory of replays in SQL: each step of an item is a transaction of its own; the audit's row is in the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Update, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables, transactions
from service.adapters.sql.database import Database
from service.adapters.sql.queries import rows_in
from service.adapters.sql.rows import AnyRow, Values, json_text
from service.adapters.sql.sale_transaction import SqlSaleTransaction
from service.adapters.sql.statements import insert_or_ignore
from service.domain.ids import BatchId, ReservationId, SaleId
from service.domain.replay import CLAIM_MS, Absence, Item, Now, Outcome, Replay, ReplayId, Scope, Source

AUDIT_ACT = "replay"

_scope = msgspec.json.Decoder(dict[str, Any])
_ids = msgspec.json.Decoder(tuple[str, ...])


class SqlReplayStore:
    """Implements the port's ReplayStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, replay: Replay) -> None:
        items = [
            {"replay_id": replay.id, "position": position, **_values_of_item(item)}
            for position, item in enumerate(replay.items)
        ]

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(insert(tables.replays).values(**_values_of_replay(replay)))
            if items:
                await connection.execute(insert(tables.replay_items), items)

        await transactions.write(self._database, work)

    async def begin(self, replay: Replay, position: int, item: Item, at_ms: int, *, claims: bool) -> ReplayId | None:
        replay_id, message_id = _id_of(replay), item.message_id

        async def work(connection: AsyncConnection) -> ReplayId | None:
            if claims and message_id is not None:
                holder = await _claim(connection, message_id, replay_id, at_ms)
                if holder != replay_id:
                    return holder
            await connection.execute(_update(replay_id, position, item).values(begun_at_ms=at_ms))
            await SqlSaleTransaction(connection, {}).audit(
                replay.actor,
                AUDIT_ACT,
                item.subject,
                why=replay.why or "",
                detail=_detail(replay, item),
                at_ms=at_ms,
            )
            return None

        return await transactions.write(self._database, work)

    async def end(self, replay_id: ReplayId, position: int, item: Item, at_ms: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_update(replay_id, position, item).values(ended_at_ms=at_ms))
            if item.outcome is Outcome.WAITING and item.message_id is not None:
                await _unclaim(connection, item.message_id, replay_id)

        await transactions.write(self._database, work)

    async def finish(self, replay_id: ReplayId, at_ms: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            mine = tables.replays.c.id == replay_id
            await connection.execute(update(tables.replays).where(mine).values(finished_at_ms=at_ms))

        await transactions.write(self._database, work)

    async def replay(self, replay_id: ReplayId) -> Replay | None:
        row = tables.replay_items.c

        async def work(connection: AsyncConnection) -> Replay | None:
            found = await connection.execute(select(tables.replays).where(tables.replays.c.id == replay_id))
            replay = found.one_or_none()
            if replay is None:
                return None
            statement = select(tables.replay_items).where(row.replay_id == replay_id).order_by(row.position)
            items = (await connection.execute(statement)).all()
            return _replay_of_row(replay, [_item_of_row(item) for item in items])

        return await transactions.read(self._database, work)

    async def claims(self, message_ids: Sequence[str], at_ms: int) -> dict[str, ReplayId]:
        row = tables.replay_claims.c
        alive = select(tables.replay_claims).where(row.claimed_at_ms > at_ms - CLAIM_MS)

        async def work(connection: AsyncConnection) -> list[AnyRow]:
            return await rows_in(connection, alive, row.message_id, message_ids)

        return {it.message_id: ReplayId(it.replay_id) for it in await transactions.read(self._database, work)}


async def _claim(connection: AsyncConnection, message_id: str, replay_id: ReplayId, at_ms: int) -> ReplayId:
    """Who has it now: this replay, or another one whose claim is alive. What is past goes first."""
    row = tables.replay_claims.c
    await connection.execute(delete(tables.replay_claims).where(row.claimed_at_ms <= at_ms - CLAIM_MS))
    mine: Values = {"message_id": message_id, "replay_id": replay_id, "claimed_at_ms": at_ms}
    await insert_or_ignore(connection, tables.replay_claims, [mine])
    holder = await connection.execute(select(row.replay_id).where(row.message_id == message_id).with_for_update())
    return ReplayId(holder.scalar_one())


async def _unclaim(connection: AsyncConnection, message_id: str, replay_id: ReplayId) -> None:
    row = tables.replay_claims.c
    mine = (row.message_id == message_id, row.replay_id == replay_id)
    await connection.execute(delete(tables.replay_claims).where(*mine))


def _update(replay_id: ReplayId, position: int, item: Item) -> Update:
    row = tables.replay_items.c
    this = update(tables.replay_items).where(row.replay_id == replay_id, row.position == position)
    return this.values(outcome=str(item.outcome), why=item.why)


def _id_of(replay: Replay) -> ReplayId:
    if replay.id is None:
        raise ValueError("a dry run is not stored")
    return replay.id


def _detail(replay: Replay, item: Item) -> dict[str, object]:
    return {
        "replay": replay.id,
        "source": str(replay.scope.source),
        "sale": item.sale_id,
        "batch": item.batch_id,
        "message": item.message_id,
    }


def _values_of_replay(replay: Replay) -> Values:
    scope = replay.scope
    named = {
        "source": str(scope.source),
        "sale": scope.sale_id,
        "reservation_ids": scope.reservation_ids,
        "batch_ids": scope.batch_ids,
        "older_than_s": scope.older_than_s,
    }
    return {
        "id": _id_of(replay),
        "scope": json_text(named),
        "why": replay.why or "",
        "actor": replay.actor,
        "more": replay.more,
        "created_at_ms": replay.created_at_ms,
        "finished_at_ms": replay.finished_at_ms,
    }


def _values_of_item(item: Item) -> Values:
    return {
        "message_id": item.message_id,
        "batch_id": item.batch_id,
        "sale_id": item.sale_id,
        "epoch": item.epoch,
        "reservation_ids": json_text([now.reservation_id for now in item.reservations]),
        "outcome": str(item.outcome),
        "why": item.why,
        "born_at_ms": item.born_at_ms,
    }


def _replay_of_row(row: AnyRow, items: Sequence[Item]) -> Replay:
    return Replay(
        id=ReplayId(row.id),
        scope=_scope_of_text(row.scope),
        why=row.why,
        actor=row.actor,
        created_at_ms=row.created_at_ms,
        more=row.more,
        items=tuple(items),
        finished_at_ms=row.finished_at_ms,
    )


def _scope_of_text(text: str) -> Scope:
    named = _scope.decode(text)
    return Scope(
        source=Source(named["source"]),
        sale_id=named["sale"],
        reservation_ids=tuple(named["reservation_ids"]),
        batch_ids=tuple(named["batch_ids"]),
        older_than_s=named["older_than_s"],
    )


def _item_of_row(row: AnyRow) -> Item:
    ids = [ReservationId(id_) for id_ in _ids.decode(row.reservation_ids)]
    return Item(
        outcome=Outcome(row.outcome),
        why=row.why,
        message_id=row.message_id,
        batch_id=None if row.batch_id is None else BatchId(row.batch_id),
        sale_id=None if row.sale_id is None else SaleId(row.sale_id),
        epoch=row.epoch,
        born_at_ms=row.born_at_ms,
        reservations=tuple(Now(reservation_id=id_, standing=Absence.IN_DOUBT) for id_ in ids),
    )
