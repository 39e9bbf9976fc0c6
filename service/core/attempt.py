"""One half attempt: peek, half message, reserve, decision, answers, verdict (design §3.1 steps 3-8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from service.core.answering import Answering
from service.core.batching import Ticket
from service.core.directory import SaleDirectory
from service.domain.batch import SCHEMA, BatchMessage, Candidate, encode
from service.domain.check_back import Verdict, verdict_of_answers
from service.domain.errors import (
    EpochChanged,
    InDoubt,
    OutcomeUnknown,
    Permanent,
    StockRefused,
    StockUnavailable,
    StoreUnavailable,
    Unavailable,
)
from service.domain.ids import ReservationId, new_batch_id
from service.domain.sale import Authority, Sale, older_may_still_win
from service.domain.stock import (
    Fenced,
    Known,
    Lost,
    Refusal,
    ReserveAnswer,
    Reserved,
    Slot,
    Undecided,
    Won,
)
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.messaging import OutgoingMessage, TransactionalProducer
from service.ports.orders import OrderStore, SaleTransaction
from service.ports.stock import Stock

Answers = Mapping[ReservationId, ReserveAnswer]


class AttemptTools:
    """What every attempt of this process shares."""

    def __init__(
        self,
        *,
        directory: SaleDirectory,
        stock: Stock,
        orders: OrderStore,
        producer: TransactionalProducer,
        clock: Clock,
        topic: str,
    ) -> None:
        self.directory = directory
        self.stock = stock
        self.orders = orders
        self.producer = producer
        self.clock = clock
        self.topic = topic


class Attempt:
    """One batch on its way. `answered` is called once its requests have their answers: the verdict is off the reply
    path."""

    def __init__(
        self, tools: AttemptTools, sale: Sale, segment: int, tickets: Sequence[Ticket], answered: Callable[[], None]
    ) -> None:
        self._tools = tools
        self._sale = sale
        self._slot = Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch)
        self._answered = answered
        # Judged when the attempt begins: a 409 is final only if no older candidate could win from here on.
        final = not older_may_still_win(sale, tools.clock.now_ms())
        self._answering = Answering(tools.orders, sale, tickets, final=final)

    async def run(self) -> None:
        try:
            candidates = await self._peek()
            if candidates:
                await self._transact(candidates)
        except InDoubt as error:
            self._answering.refuse_all(error)
        finally:
            self._answered()

    # --- step 3 -------------------------------------------------------------------------------------------------------

    async def _peek(self) -> list[Candidate]:
        """Answer what can be answered now; the candidates that remain go into the half message."""
        candidates = self._answering.candidates()
        limit = self._sale.rules.limit_per_buyer
        reply = await self._tools.stock.peek(self._slot, candidates, limit)
        if isinstance(reply, Lost):
            await self._tools.directory.report_lost(self._sale, reply.found)
            raise Unavailable("stock", "Redis is being rebuilt")
        decided: dict[ReservationId, Known | Refusal] = {}
        remaining = []
        for candidate in candidates:
            answer = reply.answers[candidate.reservation_id]
            if isinstance(answer, Undecided):
                remaining.append(candidate)
            else:
                decided[candidate.reservation_id] = answer
        await self._answering.decided(decided)
        return remaining

    # --- steps 4-7 ----------------------------------------------------------------------------------------------------

    async def _transact(self, candidates: Sequence[Candidate]) -> None:
        batch = BatchMessage(
            schema=SCHEMA,
            batch_id=new_batch_id(),
            sale_id=self._sale.id,
            segment=self._slot.segment,
            epoch=self._sale.epoch,
            created_at_ms=self._tools.clock.now_ms(),
            candidates=tuple(candidates),
        )
        message = OutgoingMessage(topic=self._tools.topic, body=encode(batch), key=batch.batch_id)
        metrics.BATCH_SIZE.observe(len(candidates))
        with metrics.IN_FLIGHT.track_inprogress():
            try:
                verdict = await self._tools.producer.transact(message, lambda: self._decide(batch))
            except Unavailable as error:
                metrics.BATCHES.labels("not_sent").inc()
                warn(Action.HALF_NOT_SENT, sale_id=self._sale.id, batch_id=batch.batch_id, error=str(error))
                raise
        metrics.BATCHES.labels(verdict.value).inc()

    async def _decide(self, batch: BatchMessage) -> Verdict:
        """The local transaction. Its requests are answered when it returns."""
        try:
            reply = await self._tools.stock.reserve(self._slot, batch, self._sale.rules.limit_per_buyer)
        except StockRefused as error:
            # It was not done, and never will be: nobody got anything, and no check-back need ask.
            warn(Action.BATCH_REFUSED, sale_id=self._sale.id, batch_id=batch.batch_id, error=str(error))
            self._answering.refuse_all(error)
            return self._ended(Verdict.ROLLBACK)
        except StockUnavailable as error:
            # It may have happened: only the check-back, which reads or fences, can tell.
            warn(Action.BATCH_IN_DOUBT, sale_id=self._sale.id, batch_id=batch.batch_id, error=str(error))
            self._answering.refuse_all(OutcomeUnknown())
            return self._ended(Verdict.UNKNOWN)
        return self._ended(await self._conclude(batch, reply))

    def _ended(self, verdict: Verdict) -> Verdict:
        self._answered()
        return verdict

    async def _conclude(self, batch: BatchMessage, reply: Reserved | Fenced | Lost) -> Verdict:
        match reply:
            case Lost(found=found):
                await self._tools.directory.report_lost(self._sale, found)
                self._answering.refuse_all(OutcomeUnknown())
                return Verdict.ROLLBACK
            case Fenced(known=known):
                warn(Action.BATCH_FENCED, sale_id=self._sale.id, batch_id=batch.batch_id)
                await self._answering.decided({id_: Known(record=record) for id_, record in known.items()})
                self._answering.refuse_all(OutcomeUnknown())
                return Verdict.ROLLBACK
            case Reserved(answers=answers):
                if self._tools.directory.still_sells(self._sale):
                    await self._answer(batch, answers)
                else:
                    # This process slept during the call: the authority may have changed, and rows may say otherwise.
                    self._answering.refuse_all(OutcomeUnknown())
                return verdict_of_answers(answers)
            case unreachable:
                assert_never(unreachable)

    # --- step 6 and the answers ---------------------------------------------------------------------------------------

    async def _answer(self, batch: BatchMessage, answers: Answers) -> None:
        candidates = {candidate.reservation_id: candidate for candidate in batch.candidates}
        others: dict[ReservationId, Known | Refusal] = {}
        winners = 0
        for id_, answer in answers.items():
            if isinstance(answer, Won):
                winners += 1
                self._answering.queued(batch, candidates[id_])
            else:
                others[id_] = answer
        losers = [id_ for id_, answer in others.items() if _lost(candidates[id_], answer)]
        log(
            Action.BATCH_DECIDED,
            sale_id=self._sale.id,
            batch_id=batch.batch_id,
            epoch=batch.epoch,
            winners=winners,
            losers=len(losers),
            known=len(others) - len(losers),
        )
        if losers and not await self._record_decision(batch, losers):
            for id_ in losers:
                self._answering.refuse(id_, OutcomeUnknown(id_))
                del others[id_]
        await self._answering.decided(others)

    async def _record_decision(self, batch: BatchMessage, losers: Sequence[ReservationId]) -> bool:
        """Under the sale-row lock and only while the row's epoch is the batch's own (step 6). False: losers hear
        503."""

        async def work(transaction: SaleTransaction) -> None:
            sale = transaction.sales.get(batch.sale_id)
            if sale is None or (sale.epoch, sale.authority) != (batch.epoch, Authority.REDIS):
                raise EpochChanged(batch.sale_id, batch.epoch, 0 if sale is None else sale.epoch)
            await transaction.record_decision(batch.sale_id, batch.batch_id, losers, self._tools.clock.now_ms())

        try:
            await self._tools.orders.transact([batch.sale_id], work)
        except (StoreUnavailable, EpochChanged, Permanent) as error:
            # Permanent too: what SQL has against the losers' row is nothing against the winners' COMMIT.
            warn(Action.BATCH_IN_DOUBT, sale_id=batch.sale_id, batch_id=batch.batch_id, error=str(error))
            return False
        return True


def _lost(candidate: Candidate, answer: Known | Refusal) -> bool:
    """Refused here; or its key was taken by another body, which stands: after a loss of Redis it must still do so."""
    match answer:
        case Refusal():
            return True
        case Known(record=record):
            return record.fingerprint != candidate.fingerprint
        case unreachable:
            assert_never(unreachable)
