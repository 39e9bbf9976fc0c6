"""Stock adjustments (design §3.8): increase SQL then Redis, decrease Redis (conditional) then SQL; once an id."""

from __future__ import annotations

from dataclasses import replace

from service.core.directory import SaleDirectory
from service.domain.errors import Conflict, EpochChanged, InDoubt, InvalidRequest, OutcomeUnknown, Unavailable
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Slot, TooFewLeft
from service.ports.clock import Clock
from service.ports.orders import Adjustment, OrderStore, SaleTransaction, StockMovement
from service.ports.stock import Stock

FINISH_A_TURN = 50
LEFT_ALONE_MS = 5_000
"""The keeper leaves an adjustment alone for this long: whoever began it is most likely still at it."""


class Adjusting:
    """Units go to and come from segment 0: transfers even them out where a sale has more than one."""

    def __init__(self, directory: SaleDirectory, stock: Stock, orders: OrderStore, clock: Clock) -> None:
        self._directory = directory
        self._stock = stock
        self._orders = orders
        self._clock = clock

    async def adjust(self, sale: Sale, adjustment_id: str, delta: int, actor: str) -> Sale:
        """The sale after it. Conflict `stock_too_low` where a decrease finds too few units unsold.

        OutcomeUnknown: begun, and the keeper finishes it; the same id again does no harm.
        """
        if sale.authority is Authority.LOADING:
            raise Unavailable("stock", "the sale's stock is being rebuilt")
        try:
            await self._begin(sale, adjustment_id, delta, actor)
        except InDoubt as error:
            raise OutcomeUnknown from error
        return await self._directory.current(sale.id)

    async def turn(self) -> int:
        """The keeper's turn: finish what was left half done; the number looked at."""
        before_ms = self._clock.now_ms() - LEFT_ALONE_MS
        unfinished = await self._orders.unfinished_adjustments(before_ms, FINISH_A_TURN)
        for adjustment in unfinished:
            sale = await self._directory.current(adjustment.sale_id)
            if sale.authority is not Authority.LOADING:
                await self._finish(sale, adjustment)
        return len(unfinished)

    async def _finish(self, sale: Sale, adjustment: Adjustment) -> None:
        try:
            await self._begin(sale, adjustment.id, adjustment.delta, "keeper")
        except Conflict:
            # Too few left by now: it was withdrawn, as its caller would have heard.
            return

    async def _begin(self, sale: Sale, adjustment_id: str, delta: int, actor: str) -> None:
        known = await self._note(sale, adjustment_id, delta)
        if delta < 0 and not known.applied:
            await self._decrease_in_redis(sale, known)
        if not known.applied:
            known = await self._apply_in_sql(sale, known, actor)
        if known.owed_epoch is not None:
            await self._increase_in_redis(sale, known)

    async def _note(self, sale: Sale, adjustment_id: str, delta: int) -> Adjustment:
        """The adjustment's row: its own, or made now."""

        async def work(transaction: SaleTransaction) -> Adjustment:
            known = await transaction.adjustment(adjustment_id)
            if known is None:
                known = Adjustment(id=adjustment_id, sale_id=sale.id, delta=delta, applied=False, owed_epoch=None)
                await transaction.put_adjustment(known, self._clock.now_ms())
            if (known.sale_id, known.delta) != (sale.id, delta):
                raise InvalidRequest(
                    "adjustment_id", "used before for another adjustment, or withdrawn: take a new one"
                )
            return known

        return await self._orders.transact([sale.id], work)

    # --- SQL ----------------------------------------------------------------------------------------------------------

    async def _apply_in_sql(self, sale: Sale, known: Adjustment, actor: str) -> Adjustment:
        """`available` and `adjusted` with their ledger row, while authority and epoch are those the Redis step saw."""

        async def work(transaction: SaleTransaction) -> Adjustment:
            locked = transaction.sales[sale.id]
            if (locked.authority, locked.epoch) != (sale.authority, sale.epoch):
                raise EpochChanged(sale.id, sale.epoch, locked.epoch)
            again = await transaction.adjustment(known.id)
            if again is not None and again.applied:
                return again
            if locked.available + known.delta < 0:
                raise Conflict("stock_too_low", sale_id=sale.id)
            now_ms = self._clock.now_ms()
            owed = locked.epoch if known.delta > 0 and locked.authority is Authority.REDIS else None
            applied = replace(known, applied=True, owed_epoch=owed)
            await transaction.put_adjustment(applied, now_ms)
            movement = StockMovement(
                key=f"adjust:{known.id}", sale_id=sale.id, kind="adjust", delta=known.delta, at_ms=now_ms
            )
            await transaction.move_stock([movement])
            await transaction.audit(actor, "adjust", sale.id, why=known.id, detail={"delta": known.delta}, at_ms=now_ms)
            return applied

        return await self._orders.transact([sale.id], work)

    async def _put(self, adjustment: Adjustment) -> None:
        async def work(transaction: SaleTransaction) -> None:
            await transaction.put_adjustment(adjustment, self._clock.now_ms())

        await self._orders.transact([adjustment.sale_id], work)

    # --- Redis --------------------------------------------------------------------------------------------------------

    async def _decrease_in_redis(self, sale: Sale, known: Adjustment) -> None:
        if sale.authority is not Authority.REDIS:
            return
        if not await self._adjust_slot(sale, known):
            # Withdrawn: a row with no delta says so to whoever comes again with this id.
            await self._put(replace(known, delta=0, applied=True))
            raise Conflict("stock_too_low", sale_id=sale.id)

    async def _increase_in_redis(self, sale: Sale, known: Adjustment) -> None:
        """Only in the epoch that owes it: a later one was loaded from SQL, which has it."""
        if sale.authority is Authority.REDIS and sale.epoch == known.owed_epoch:
            await self._adjust_slot(sale, known)
        await self._put(replace(known, owed_epoch=None))

    async def _adjust_slot(self, sale: Sale, known: Adjustment) -> bool:
        slot = Slot(sale_id=sale.id, segment=0, epoch=sale.epoch)
        reply = await self._stock.adjust(slot, known.id, known.delta)
        if isinstance(reply, Lost):
            await self._directory.report_lost(sale, reply.found)
            raise EpochChanged(sale.id, sale.epoch, sale.epoch)
        return not isinstance(reply, TooFewLeft)
