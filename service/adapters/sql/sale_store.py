"""The sale store: sale rows, the road of authority, the leader's lease, keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import authority, schema, snapshot, tables, transactions, unlinks
from service.adapters.sql.database import Database, Lane
from service.adapters.sql.rows import (
    Values,
    key_of_row,
    sale_of_row,
    values_of_movement,
    values_of_new_sale,
    values_of_rules,
)
from service.adapters.sql.sale_rows import lock_sale
from service.adapters.sql.sale_transaction import SqlSaleTransaction
from service.adapters.sql.sale_view import SaleView, in_order, is_unsettled, live_ones, newest_settled
from service.adapters.sql.statements import BY_KEY, insert_or_ignore
from service.domain.errors import Conflict, InvalidRequest, InvariantBroken, NotFound
from service.domain.ids import SaleId
from service.domain.sale import Authority, Sale, SaleRules, SaleStatus, ServerIds
from service.ports.orders import SALES_MAX, SALES_READ_MAX, ApiKey, OwedUnlink, Snapshot, StockMovement


class SqlSaleStore:
    """Implements the port's SaleStore on SQLite, MySQL and MariaDB."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._view = SaleView(database)

    async def create(self, sale_id: SaleId, rules: SaleRules, now_ms: int) -> Sale:
        first = StockMovement(
            key=f"initial:{sale_id}", sale_id=sale_id, kind="initial", delta=rules.stock, at_ms=now_ms
        )

        async def work(connection: AsyncConnection) -> Sale | None:
            known = await lock_sale(connection, sale_id)
            if known is not None:
                return known
            if await _unsettled(connection) >= SALES_MAX:
                raise Conflict("too_many_sales", sale_id=sale_id)
            new = values_of_new_sale(sale_id, rules, now_ms)
            await insert_or_ignore(connection, tables.sales, [new])
            await insert_or_ignore(connection, tables.stock_movements, [values_of_movement(first)])
            return await lock_sale(connection, sale_id)

        sale = await transactions.write(self._database, work)
        if sale is None:
            raise InvariantBroken("sale", f"{sale_id} was inserted and is not there")
        if sale.rules != rules:
            raise Conflict("sale_exists", sale_id=sale_id)
        return sale

    async def sale(self, sale_id: SaleId) -> Sale | None:
        rows = await transactions.read_rows(self._database, select(tables.sales).where(tables.sales.c.id == sale_id))
        return sale_of_row(rows[0]) if rows else None

    async def sales(self) -> Sequence[Sale]:
        """Two statements, each by the index over states: settled sales stay for ever."""

        async def work(connection: AsyncConnection) -> Sequence[Sale]:
            live = await live_ones(connection)
            settled = await connection.execute(newest_settled(tables.sales, limit=SALES_READ_MAX - len(live)))
            return in_order(live, map(sale_of_row, settled))

        return await transactions.read(self._database, work, lane=Lane.VIEW)

    async def view(self) -> Sequence[Sale]:
        return await self._view.sales()

    async def set_status(self, sale_id: SaleId, expected: SaleStatus, status: SaleStatus, now_ms: int) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            sale = await _locked(connection, sale_id)
            if sale.status is not expected:
                return False
            values: Values = {"status": str(status), "status_at_ms": now_ms}
            if status is SaleStatus.OPEN and sale.authority is Authority.REDIS:
                values["sold_in_epoch"] = True
            await _update(connection, sale_id, values)
            return True

        return await transactions.write(self._database, work, sale_ids=[sale_id])

    async def want_redis(self, sale_id: SaleId) -> None:
        async def work(connection: AsyncConnection) -> None:
            await _locked(connection, sale_id)
            await _update(connection, sale_id, {"wants_redis": True})

        await transactions.write(self._database, work, sale_ids=[sale_id])

    async def change_rules(
        self,
        sale_id: SaleId,
        change: Callable[[Sale], SaleRules],
        now_ms: int,  # noqa: ARG002
    ) -> Sale:
        async def work(connection: AsyncConnection) -> Sale:
            sale = await _locked(connection, sale_id)
            rules = change(sale)
            if rules.stock != sale.initial:
                raise InvalidRequest("stock", "changes by an adjustment, which the ledger can show")
            await _update(connection, sale_id, values_of_rules(rules))
            return replace(sale, rules=rules)

        return await transactions.write(self._database, work, sale_ids=[sale_id])

    async def report_lost(self, sale_id: SaleId, epoch: int, found: ServerIds, now_ms: int) -> bool:
        row = tables.sales.c
        statement = (
            update(tables.sales)
            .with_hint(BY_KEY, dialect_name="mysql")
            .where(
                row.id == sale_id,
                row.authority == str(Authority.REDIS),
                row.epoch == epoch,
                row.lost_at_ms.is_(None),
            )
            .values(lost_run_id=found.run_id, lost_replid=found.replid, lost_at_ms=now_ms)
        )

        async def work(connection: AsyncConnection) -> bool:
            return (await connection.execute(statement)).rowcount == 1

        return await transactions.write(self._database, work)

    async def dismiss_lost(self, sale_id: SaleId, epoch: int) -> None:
        row = tables.sales.c
        statement = (
            update(tables.sales)
            .where(row.id == sale_id, row.epoch == epoch)
            .values(lost_run_id=None, lost_replid=None, lost_at_ms=None)
        )

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(statement)

        await transactions.write(self._database, work)

    async def change_authority(
        self,
        sale_id: SaleId,
        *,
        leader: str,
        expected: tuple[Authority, int],
        to: Authority,
        now_ms: int,
    ) -> Sale | None:
        async def work(connection: AsyncConnection) -> Sale | None:
            return await authority.change(connection, sale_id, leader=leader, expected=expected, to=to, now_ms=now_ms)

        return await transactions.write(self._database, work)

    async def snapshot(self, sale_id: SaleId, epoch: int) -> Snapshot | None:
        async def work(connection: AsyncConnection) -> Snapshot | None:
            return await snapshot.take(connection, sale_id, epoch)

        return await transactions.write(self._database, work, one_snapshot=True, timeout_s=snapshot.TIMEOUT_S)

    async def owed_unlinks(self, due_before_ms: int, limit: int) -> Sequence[OwedUnlink]:
        return await unlinks.owed(self._database, due_before_ms, limit)

    async def unlinked(self, owed: OwedUnlink, again_at_ms: int | None) -> None:
        await unlinks.done(self._database, owed, again_at_ms)

    async def owe_unlink(self, sale_id: SaleId, epoch: int, at_ms: int) -> None:
        await unlinks.owe(self._database, sale_id, epoch, at_ms)

    async def acquire_lease(self, name: str, owner: str, now_ms: int, ttl_ms: int) -> bool:
        lease = tables.leases.c
        wanted = {"name": name, "owner": owner, "expires_at_ms": now_ms + ttl_ms}
        free = or_(lease.owner == owner, lease.expires_at_ms <= now_ms)

        async def work(connection: AsyncConnection) -> bool:
            await insert_or_ignore(connection, tables.leases, [wanted])
            await connection.execute(
                update(tables.leases)
                .where(and_(lease.name == name, free))
                .values(owner=owner, expires_at_ms=now_ms + ttl_ms)
            )
            held = await connection.execute(select(lease.owner).where(lease.name == name))
            return held.scalar() == owner

        return await transactions.write(self._database, work, lane=Lane.VIEW)

    async def release_lease(self, name: str, owner: str) -> None:
        lease = tables.leases.c

        async def work(connection: AsyncConnection) -> None:
            mine = and_(lease.name == name, lease.owner == owner)
            await connection.execute(delete(tables.leases).where(mine))

        await transactions.write(self._database, work, lane=Lane.VIEW)

    async def keys(self) -> Sequence[ApiKey]:
        statement = select(tables.api_keys).order_by(tables.api_keys.c.created_at_ms, tables.api_keys.c.id)
        return [key_of_row(row) for row in await transactions.read_rows(self._database, statement, lane=Lane.VIEW)]

    async def add_key(self, key: ApiKey) -> None:
        async def work(connection: AsyncConnection) -> None:
            values = {"id": key.id, "hash": key.hash, "role": key.role, "created_at_ms": key.created_at_ms}
            await connection.execute(insert(tables.api_keys).values(**values))

        await transactions.write(self._database, work)

    async def revoke_key(self, key_id: str, actor: str, at_ms: int) -> bool:
        key = tables.api_keys.c

        async def work(connection: AsyncConnection) -> bool:
            role = (await connection.execute(select(key.role).where(key.id == key_id))).scalar()
            if role is None:
                return False
            await connection.execute(delete(tables.api_keys).where(key.id == key_id))
            await SqlSaleTransaction(connection, {}).audit(
                actor, "revoke_key", key_id, why="", detail={"role": role}, at_ms=at_ms
            )
            return True

        return await transactions.write(self._database, work)

    async def schema_problem(self) -> str | None:
        return await schema.schema_problem(self._database)


async def _locked(connection: AsyncConnection, sale_id: SaleId) -> Sale:
    sale = await lock_sale(connection, sale_id)
    if sale is None:
        raise NotFound("sale", sale_id)
    return sale


async def _unsettled(connection: AsyncConnection) -> int:
    statement = select(func.count()).select_from(tables.sales).where(is_unsettled())
    return int((await connection.execute(statement)).scalar() or 0)


async def _update(connection: AsyncConnection, sale_id: SaleId, values: Values) -> None:
    await connection.execute(update(tables.sales).where(tables.sales.c.id == sale_id).values(**values))
