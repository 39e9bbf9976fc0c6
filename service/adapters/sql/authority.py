"""Changes of authority: compare-and-set on the sale's row, by the leader only (design §3.3)."""

from __future__ import annotations

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.rows import Values
from service.adapters.sql.sale_rows import lock_sale
from service.domain.errors import InvariantBroken
from service.domain.ids import SaleId
from service.domain.sale import AUTHORITY_TRANSITIONS, Authority, Sale, SaleStatus
from service.ports.orders import LEADER_LEASE


async def change(
    connection: AsyncConnection,
    sale_id: SaleId,
    *,
    leader: str,
    expected: tuple[Authority, int],
    to: Authority,
    now_ms: int,
) -> Sale | None:
    """The sale after the change, or None: someone else was there, or `leader` leads no more."""
    growth = AUTHORITY_TRANSITIONS.get((expected[0], to))
    if growth is None:
        raise InvariantBroken("authority", f"{sale_id}: there is no way from {expected[0]} to {to}")
    sale = await lock_sale(connection, sale_id)
    if sale is None or (sale.authority, sale.epoch) != expected:
        return None
    if not await _leads(connection, leader, now_ms):
        return None
    deadline_ms = now_ms + sale.rules.queue_deadline_s * 1000
    if growth:
        await connection.execute(insert(tables.sale_epochs).values(**_end_of_epoch(sale, now_ms, deadline_ms)))
    values = _arrived(sale, to, sale.epoch + growth, now_ms, deadline_ms)
    await connection.execute(update(tables.sales).where(tables.sales.c.id == sale_id).values(**values))
    return await lock_sale(connection, sale_id)


def _end_of_epoch(sale: Sale, now_ms: int, deadline_ms: int) -> Values:
    """What Redis may hold of the epoch is owed an unlink from this COMMIT on, whatever becomes of the leader."""
    return {
        "sale_id": sale.id,
        "epoch": sale.epoch,
        "ended_at_ms": now_ms,
        "deadline_ms": deadline_ms,
        "segments": sale.segments,
        "unlink_at_ms": None if sale.authority is Authority.SQL else now_ms,
    }


async def _leads(connection: AsyncConnection, leader: str, now_ms: int) -> bool:
    """Whether the lease is the leader's, and stays so until this COMMIT."""
    lease = tables.leases.c
    statement = select(lease.owner, lease.expires_at_ms).where(lease.name == LEADER_LEASE).with_for_update()
    row = (await connection.execute(statement)).one_or_none()
    return row is not None and row.owner == leader and row.expires_at_ms > now_ms


def _arrived(sale: Sale, to: Authority, epoch: int, now_ms: int, deadline_ms: int) -> Values:
    """The columns that change on the way from the sale's authority to `to`."""
    values: Values = {
        "authority": str(to),
        "epoch": epoch,
        "sold_in_epoch": to is Authority.REDIS and sale.status is SaleStatus.OPEN,
        "lost_run_id": None,
        "lost_replid": None,
        "lost_at_ms": None,
    }
    if epoch != sale.epoch:
        values["epoch_started_at_ms"] = now_ms
    if to is Authority.LOADING:
        values["segments"] = sale.rules.segments
    if sale.authority is Authority.REDIS and sale.sold_in_epoch:
        values["older_deadline_ms"] = max(deadline_ms, sale.older_deadline_ms or 0)
    return values
