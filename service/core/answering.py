"""What the requests of one batch hear: from rows where there are any, else from records; a refusal last (design §3.1
steps 3, 6, 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from service.core.batching import Ticket
from service.core.views import queued_from_candidate, queued_from_record
from service.domain.batch import BatchMessage, Candidate
from service.domain.errors import Conflict, DropgateError, IdempotencyKeyReused, OutcomeUnknown, StoreUnavailable
from service.domain.ids import ReservationId
from service.domain.order import Order
from service.domain.sale import Sale
from service.domain.stock import Known, No, Record, RecordState, Refusal
from service.ports.orders import OrderStore


class Answering:
    """The tickets of one batch, by id: requests with one key meet here. `final`: no older candidate could win from the
    attempt's begin on."""

    def __init__(self, orders: OrderStore, sale: Sale, tickets: Sequence[Ticket], *, final: bool) -> None:
        self._orders = orders
        self._sale = sale
        self._final = final
        self._tickets: dict[ReservationId, list[Ticket]] = {}
        for ticket in tickets:
            self._tickets.setdefault(ticket.candidate.reservation_id, []).append(ticket)

    def candidates(self) -> list[Candidate]:
        """One an id: of two bodies under one key the first counts."""
        return [tickets[0].candidate for tickets in self._tickets.values()]

    def gets_live_again(self, id_: ReservationId) -> bool:
        """Without a key and with a limit of one, a buyer gets their live reservation again (design §5)."""
        return not self._tickets[id_][0].keyed and self._sale.rules.limit_per_buyer == 1

    # --- one id -------------------------------------------------------------------------------------------------------

    def queued(self, batch: BatchMessage, candidate: Candidate) -> None:
        reservation = queued_from_candidate(self._sale, batch, candidate)
        for place, ticket in enumerate(self._tickets[candidate.reservation_id]):
            if ticket.candidate.fingerprint != candidate.fingerprint:
                ticket.refuse(IdempotencyKeyReused(candidate.reservation_id))
            else:
                ticket.answer(reservation, replayed=place > 0)

    def row(self, id_: ReservationId, row: Order, *, new: bool = False) -> None:
        """The id's own row. `new`: this batch made it, so the first of its requests is no repetition."""
        for place, ticket in enumerate(self._tickets[id_]):
            if ticket.candidate.fingerprint != row.fingerprint:
                ticket.refuse(IdempotencyKeyReused(id_))
            else:
                ticket.answer(row.as_reservation(), replayed=place > 0 or not new)

    def live_row(self, id_: ReservationId, row: Order) -> None:
        """Another reservation of the same buyer."""
        for ticket in self._tickets[id_]:
            ticket.answer(row.as_reservation(), replayed=True)

    def conflict(self, id_: ReservationId, code: str, *, held: ReservationId | None, final: bool) -> None:
        conflict = Conflict(
            code,
            sale_id=self._sale.id,
            reservation_id=id_,
            held_reservation_id=held,
            final=self._final and final,
        )
        self.refuse(id_, conflict)

    def refuse(self, id_: ReservationId, error: DropgateError) -> None:
        for ticket in self._tickets[id_]:
            ticket.refuse(error)

    def refuse_all(self, error: DropgateError) -> None:
        """Whoever has no answer yet hears this one."""
        for id_ in self._tickets:
            self.refuse(id_, OutcomeUnknown(id_) if isinstance(error, OutcomeUnknown) else error)

    # --- what Redis said ----------------------------------------------------------------------------------------------

    async def decided(self, decided: Mapping[ReservationId, Known | Refusal]) -> None:
        wanted = [id_ for id_, answer in decided.items() if self._needs_row(answer)]
        wanted += [live.reservation_id for id_, answer in decided.items() if (live := self._live_of(id_, answer))]
        try:
            rows = await self._orders.orders(wanted) if wanted else {}
        except StoreUnavailable:
            for id_ in decided:
                self.refuse(id_, OutcomeUnknown(id_))
            return
        for id_, answer in decided.items():
            self._one(id_, answer, rows)

    def _needs_row(self, answer: Known | Refusal) -> bool:
        """A record may still say `queued` when its order is committed and GET has told of it: the row comes first."""
        match answer:
            case Known():
                return True
            case Refusal():
                return not self._final
            case unreachable:
                assert_never(unreachable)

    def _live_of(self, id_: ReservationId, answer: Known | Refusal) -> Record | None:
        if not isinstance(answer, Refusal) or answer.no is not No.LIMIT_REACHED:
            return None
        return answer.live if self.gets_live_again(id_) else None

    def _one(self, id_: ReservationId, answer: Known | Refusal, rows: Mapping[ReservationId, Order]) -> None:
        live = self._live_of(id_, answer)
        if id_ in rows:
            self.row(id_, rows[id_])
        elif isinstance(answer, Known):
            self._record(id_, answer.record, rows, same_id=True)
        elif live is not None:
            self._record(id_, live, rows, same_id=False)
        else:
            code = "limit_reached" if answer.no is No.LIMIT_REACHED else "sold_out"
            held = None if answer.live is None else answer.live.reservation_id
            # Units that someone holds may come back: then this id may win after all.
            self.conflict(id_, code, held=held, final=not answer.units_held)

    def _record(
        self, id_: ReservationId, record: Record, rows: Mapping[ReservationId, Order], *, same_id: bool
    ) -> None:
        """From a record: `queued` as it is; `ordered` or `ended` by its row, and in doubt while the row is on its
        way."""
        row = rows.get(record.reservation_id)
        for ticket in self._tickets[id_]:
            if same_id and record.fingerprint != ticket.candidate.fingerprint:
                ticket.refuse(IdempotencyKeyReused(id_))
            elif row is not None:
                ticket.answer(row.as_reservation(), replayed=True)
            elif record.state is RecordState.QUEUED:
                ticket.answer(queued_from_record(self._sale, record), replayed=True)
            else:
                ticket.refuse(OutcomeUnknown(id_))
