"""Ids that an operator names in a replay: which are any, whose they are, and how they stand. Read only."""

from __future__ import annotations

from dataclasses import dataclass

from service.core.directory import SaleDirectory
from service.core.replay_cases import Case, left_alone
from service.core.standings import Standings
from service.domain.batch import is_batch_id
from service.domain.errors import NotFound
from service.domain.ids import BatchId, ReservationId, SaleId, parse_reservation_id, sale_of
from service.domain.replay import Absence, Item, Now, Outcome, Scope
from service.domain.reservation import Status
from service.domain.sale import Authority, Sale
from service.domain.stock import Record
from service.ports.orders import OrderStore


@dataclass(frozen=True, kw_only=True)
class Queued:
    """It holds stock and has no order: its batch is what can be replayed."""

    sale: Sale
    record: Record


class NamedIds:
    def __init__(self, directory: SaleDirectory, orders: OrderStore, standings: Standings) -> None:
        self._directory = directory
        self._orders = orders
        self._standings = standings

    async def reservation(self, scope: Scope, id_: ReservationId) -> Queued | Case:
        """Queued, or the item that says why nothing is done for it."""
        parsed = parse_reservation_id(id_)
        if parsed is None:
            return left_alone(Outcome.REFUSED, "This is no reservation id.", id_)
        if scope.sale_id not in {None, parsed[0]}:
            elsewhere = Now(reservation_id=id_, standing=Absence.IN_DOUBT)
            return left_alone(Outcome.REFUSED, f"It is of sale {parsed[0]}.", id_, sale_id=parsed[0], now=elsewhere)
        try:
            sale = await self._directory.current(parsed[0])
        except NotFound:
            return left_alone(Outcome.REFUSED, f"There is no sale {parsed[0]}.", id_, sale_id=parsed[0])
        stand = await self._standings.of(sale, [id_])
        record = stand.records.get(id_)
        if record is not None and stand.reservations[0].standing is Status.QUEUED:
            return Queued(sale=sale, record=record)
        return _decided(sale.id, stand.reservations[0])

    async def batch(self, sale: Sale, batch_id: BatchId, unread: str | None) -> Case:
        """A batch that no slot shows. `unread`: why one of them could not be looked at."""
        if not is_batch_id(batch_id):
            return _of_batch(Outcome.REFUSED, "This is no batch id.", batch_id, None)
        made, losers = await self._orders.batch_rows(batch_id)
        ids = sorted(made | (losers or frozenset()))
        if ids and sale_of(ids[0]) != sale.id:
            return _of_batch(Outcome.REFUSED, f"It is of sale {sale_of(ids[0])}.", batch_id, sale_of(ids[0]))
        if ids:
            stand = await self._standings.of(sale, ids)
            why = "It was decided before: its rows are there."
            return _of_batch(Outcome.NO_OP, why, batch_id, sale.id, stand.reservations)
        if unread is not None:
            return _of_batch(Outcome.WAITING, unread, batch_id, sale.id)
        if sale.authority is not Authority.REDIS:
            why = f"SQL has nothing of it, and {sale.id} is under {sale.authority}: its message may be on its way."
            return _of_batch(Outcome.WAITING, why, batch_id, sale.id)
        return _of_batch(Outcome.REFUSED, "No store knows this batch.", batch_id, sale.id)


def _decided(sale_id: SaleId, now: Now) -> Case:
    match now.standing:
        case Absence.NOTHING:
            outcome, why = Outcome.REFUSED, "No store knows it: it holds nothing."
        case Status.QUEUED | Absence.IN_DOUBT:
            outcome, why = Outcome.WAITING, "It cannot be said now: it may yet appear, or a store is away."
        case status:
            outcome, why = Outcome.NO_OP, f"It is {status} already."
    return left_alone(outcome, why, now.reservation_id, sale_id=sale_id, now=now)


def _of_batch(
    outcome: Outcome, why: str, batch_id: BatchId, sale_id: SaleId | None, reservations: tuple[Now, ...] = ()
) -> Case:
    item = Item(outcome=outcome, why=why, batch_id=batch_id, sale_id=sale_id, reservations=reservations)
    return Case(item=item)
