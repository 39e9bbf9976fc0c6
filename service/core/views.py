"""A reservation as the stores show it before its order exists."""

from __future__ import annotations

from service.domain.batch import BatchMessage, Candidate
from service.domain.reservation import Reservation, Status
from service.domain.sale import Sale
from service.domain.stock import Record


def queued_from_record(sale: Sale, record: Record) -> Reservation:
    return Reservation(
        id=record.reservation_id,
        sale_id=sale.id,
        buyer_id=record.buyer_id,
        quantity=record.quantity,
        status=Status.QUEUED,
        amount=sale.rules.price * record.quantity,
        currency=sale.rules.currency,
        created_at_ms=record.created_at_ms,
    )


def queued_from_candidate(sale: Sale, batch: BatchMessage, candidate: Candidate) -> Reservation:
    return Reservation(
        id=candidate.reservation_id,
        sale_id=sale.id,
        buyer_id=candidate.buyer_id,
        quantity=candidate.quantity,
        status=Status.QUEUED,
        amount=sale.rules.price * candidate.quantity,
        currency=sale.rules.currency,
        created_at_ms=batch.created_at_ms,
    )
