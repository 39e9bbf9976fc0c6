"""Money in the transaction: a payment is stored once, and has at most one refund."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql import tables
from service.adapters.sql.queries import rows_in
from service.adapters.sql.rows import payment_of_row, values_of_payment
from service.adapters.sql.statements import insert_or_ignore
from service.domain.errors import InvariantBroken
from service.domain.ids import PaymentId, ReservationId, sale_of
from service.domain.payment import Payment, PaymentOutcome, RefundReason
from service.ports.orders import StoredPayment


class SqlPayments:
    """The part of a SaleTransaction that is about money."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def payment(self, id: PaymentId) -> StoredPayment | None:  # the port's word
        statement = select(tables.payments).where(tables.payments.c.id == id)
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else payment_of_row(row)

    async def insert_payment(self, stored: StoredPayment) -> None:
        await self._connection.execute(insert(tables.payments).values(**values_of_payment(stored)))

    async def resolve_payment(self, id: PaymentId, outcome: PaymentOutcome, at_ms: int) -> None:
        statement = (
            update(tables.payments).where(tables.payments.c.id == id).values(outcome=str(outcome), resolved_at_ms=at_ms)
        )
        if (await self._connection.execute(statement)).rowcount == 0 and await self.payment(id) is None:
            raise InvariantBroken("payment", f"{id} is not stored")

    async def waiting_payments_of(self, ids: Sequence[ReservationId]) -> Sequence[StoredPayment]:
        payments = tables.payments
        statement = (
            select(payments)
            .with_hint(payments, "FORCE INDEX (payments_by_reservation)", dialect_name="mysql")
            .where(payments.c.outcome == str(PaymentOutcome.WAITING))
        )
        rows = await rows_in(self._connection, statement, payments.c.reservation_id, ids)
        found = [payment_of_row(row) for row in rows]
        return sorted(found, key=lambda stored: (stored.received_at_ms, stored.payment.id))

    async def insert_refund(self, payment: Payment, reason: RefundReason, at_ms: int) -> None:
        refund: dict[str, object] = {
            "payment_id": payment.id,
            "sale_id": sale_of(payment.reservation_id),
            "reservation_id": payment.reservation_id,
            "amount": payment.amount,
            "currency": payment.currency,
            "reason": str(reason),
            "created_at_ms": at_ms,
        }
        await insert_or_ignore(self._connection, tables.refunds, [refund])
