"""Check-back: the broker asks what became of a half message (design §3.2). Stateless, quick, and never an exception."""

from __future__ import annotations

import asyncio

from service.core.directory import SaleDirectory
from service.domain.batch import BatchMessage, decode_batch
from service.domain.check_back import Verdict, verdict_of_older_epoch, verdict_of_slot, verdict_of_sql
from service.domain.errors import DropgateError
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Slot
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.messaging import CheckRequest
from service.ports.orders import OrderStore
from service.ports.stock import Stock

ANSWER_TIMEOUT_S = 3.0
"""One slow check must not hold up the others: half of RocketMQ's transactionTimeOut, then UNKNOWN."""


class CheckBacks:
    def __init__(
        self, directory: SaleDirectory, stock: Stock, orders: OrderStore, clock: Clock, *, older_epoch_grace_s: float
    ) -> None:
        self._directory = directory
        self._stock = stock
        self._orders = orders
        self._clock = clock
        self._grace_s = older_epoch_grace_s

    async def answer(self, request: CheckRequest) -> Verdict:
        """COMMIT or ROLLBACK where the stores know, UNKNOWN on any doubt: unreadable, unknown schema, lost, away,
        slow."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                verdict = await self.verdict(decode_batch(request.body))
        except (DropgateError, TimeoutError) as error:
            return _in_doubt(request, str(error) or f"no answer within {ANSWER_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001 - the broker's callback is an edge: what comes out of it may end the
            # transport's thread, and with it all check-backs of this process. A bug is UNKNOWN too, and said aloud.
            return _in_doubt(request, repr(error))
        metrics.CHECKS.labels(verdict.value).inc()
        log(Action.CHECK_ANSWERED, batch_id=request.key, verdict=verdict, check=request.check)
        return verdict

    async def verdict(self, batch: BatchMessage) -> Verdict:
        """The verdict of a batch; raises what its stores raise."""
        sale = await self._directory.current(batch.sale_id)
        if batch.epoch < sale.epoch:
            return verdict_of_older_epoch(self._clock.now_ms(), sale.epoch_started_at_ms, self._grace_s)
        if batch.epoch > sale.epoch or sale.authority is not Authority.REDIS:
            return Verdict.UNKNOWN
        return await self._verdict_in_own_epoch(sale, batch)

    async def _verdict_in_own_epoch(self, sale: Sale, batch: BatchMessage) -> Verdict:
        ordered, losers = await self._orders.batch_rows(batch.batch_id)
        candidates = frozenset(candidate.reservation_id for candidate in batch.candidates)
        known = verdict_of_sql(candidates, ordered=ordered, losers=losers)
        if known is not None:
            return known
        if batch.segment >= sale.segments:
            # The epoch has no such slot: nobody deducted there, and nobody will. Its keys are not lost: there are none.
            return Verdict.ROLLBACK
        slot = Slot(sale_id=sale.id, segment=batch.segment, epoch=sale.epoch)
        reply = await self._stock.resolve(slot, batch.batch_id)
        if isinstance(reply, Lost):
            await self._directory.report_lost(sale, reply.found)
        return verdict_of_slot(reply)


def _in_doubt(request: CheckRequest, why: str) -> Verdict:
    metrics.CHECKS.labels("error").inc()
    warn(Action.CHECK_ANSWERED, batch_id=request.key, verdict=Verdict.UNKNOWN, check=request.check, error=why)
    return Verdict.UNKNOWN
