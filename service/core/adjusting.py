"""Stock adjustments (design §3.8): increase SQL then Redis, decrease Redis (conditional) then SQL; once an id."""

from __future__ import annotations

from dataclasses import replace

from service.core.directory import SaleDirectory
from service.domain.errors import (
    Conflict,
    DropgateError,
    EpochChanged,
    InDoubt,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
)
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Slot, TooFewLeft
from service.observability.actions import Action
from service.observability.log import warn
from service.ports.clock import Clock
from service.ports.orders import Adjustment, OrderStore, SaleTransaction, StockMovement
from service.ports.stock import Stock

FINISH_A_TURN = 50
LEFT_ALONE_MS = 5_000
"""The keeper leaves an adjustment alone for this long: whoever began it is most likely still at it."""

BACK = "back\n"
"""Before an adjustment's id: the units that a refused decrease gives back to its slot. No caller's id has a newline."""


class Adjusting:
    """Units go to and come from segment 0: transfers even them out where a sale has more than one.

    Its row is what every worker goes by: it is written under the sale's lock, only from the state that was read there,
    and only in the epoch in which Redis was asked. A refusal withdraws it in the transaction that finds it.
    """

    def __init__(self, directory: SaleDirectory, stock: Stock, orders: OrderStore, clock: Clock) -> None:
        self._directory = directory
        self._stock = stock
        self._orders = orders
        self._clock = clock

    async def adjust(self, sale: Sale, adjustment_id: str, delta: int, actor: str) -> Sale:
        """The sale after it. Conflict `stock_too_low` where a decrease finds too few units unsold: it is withdrawn, and
        nobody takes them later.

        OutcomeUnknown: begun, and the keeper finishes it; the same id again does no harm.
        """
        if sale.authority is Authority.LOADING:
            raise Unavailable("stock", "the sale's stock is being rebuilt")
        try:
            await self._do(sale, adjustment_id, delta, actor)
        except InDoubt as error:
            raise OutcomeUnknown from error
        return await self._directory.current(sale.id)

    # --- the keeper ---------------------------------------------------------------------------------------------------

    async def turn(self) -> int:
        """Finish what was left half done; the number finished. What could not be is tried again behind the others."""
        before_ms = self._clock.now_ms() - LEFT_ALONE_MS
        unfinished = await self._orders.unfinished_adjustments(before_ms, FINISH_A_TURN)
        stuck: list[str] = []
        failure: InDoubt | None = None
        for adjustment in unfinished:
            try:
                if not await self._finish(adjustment):
                    stuck.append(adjustment.id)
            except DropgateError as error:
                stuck.append(adjustment.id)
                failure = error if isinstance(error, InDoubt) else failure
                warn(Action.LOOP_FAILED, loop="adjustments", sale_id=adjustment.sale_id, error=str(error))
        await self._orders.postpone_adjustments(stuck, self._clock.now_ms())
        if failure is not None:
            raise failure
        return len(unfinished) - len(stuck)

    async def _finish(self, adjustment: Adjustment) -> bool:
        """Whether nothing is left to be done for it."""
        sale = await self._directory.current(adjustment.sale_id)
        if sale.authority is Authority.LOADING:
            return False
        try:
            await self._do(sale, adjustment.id, adjustment.delta, "keeper")
        except (Conflict, InvalidRequest):
            # Refused, now or by a rival since it was listed: it is withdrawn, as its caller has heard or will hear.
            return True
        return True

    # --- one adjustment -----------------------------------------------------------------------------------------------

    async def _do(self, sale: Sale, adjustment_id: str, delta: int, actor: str) -> None:
        known = await self._note(sale, adjustment_id, delta)
        if not known.applied:
            known = await self._apply(sale, known, actor)
        refused = known.withdrawn and delta != 0
        try:
            if known.owed_epoch is not None:
                await self._pay_redis(sale, known)
        except InDoubt as error:
            if not refused:
                raise
            warn(Action.LOOP_FAILED, loop="adjustments", sale_id=sale.id, error=str(error))
        if refused:
            raise Conflict("stock_too_low", sale_id=sale.id)

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

    async def _apply(self, sale: Sale, known: Adjustment, actor: str) -> Adjustment:
        """As it is now: applied, or withdrawn."""
        takes_from_redis = known.delta < 0 and sale.authority is Authority.REDIS
        if takes_from_redis and not await self._adjust_slot(sale, known.id, known.delta):
            return await self._withdraw(sale, known)
        return await self._apply_in_sql(sale, known, actor, taken=-known.delta if takes_from_redis else 0)

    # --- SQL ----------------------------------------------------------------------------------------------------------

    async def _apply_in_sql(self, sale: Sale, known: Adjustment, actor: str, *, taken: int) -> Adjustment:
        """`available` and `adjusted` with their ledger row, while authority and epoch are those the Redis step saw.
        Where SQL is short it is withdrawn, and the slot is owed what was `taken` from it."""

        async def work(transaction: SaleTransaction) -> Adjustment:
            locked, again = await _still(transaction, sale, known)
            if again.applied:
                return again
            now_ms = self._clock.now_ms()
            if locked.available + known.delta < 0:
                return await _put(transaction, _owing(_withdrawn(known), locked, taken), now_ms)
            gives = known.delta if known.delta > 0 else 0
            applied = await _put(transaction, _owing(replace(known, applied=True), locked, gives), now_ms)
            movement = StockMovement(
                key=f"adjust:{known.id}", sale_id=sale.id, kind="adjust", delta=known.delta, at_ms=now_ms
            )
            await transaction.move_stock([movement])
            await transaction.audit(actor, "adjust", sale.id, why=known.id, detail={"delta": known.delta}, at_ms=now_ms)
            return applied

        return await self._orders.transact([sale.id], work)

    async def _withdraw(self, sale: Sale, known: Adjustment) -> Adjustment:
        """Redis refused it, and does so for the rest of this epoch; unless a rival applied it in an earlier one."""

        async def work(transaction: SaleTransaction) -> Adjustment:
            _, again = await _still(transaction, sale, known)
            return again if again.applied else await _put(transaction, _withdrawn(known), self._clock.now_ms())

        return await self._orders.transact([sale.id], work)

    # --- Redis --------------------------------------------------------------------------------------------------------

    async def _pay_redis(self, sale: Sale, known: Adjustment) -> None:
        """Only in the epoch that owes it: a later one was loaded from SQL, which has it."""
        epoch = known.owed_epoch
        paid = sale.authority is Authority.REDIS and sale.epoch == epoch
        if paid:
            await self._adjust_slot(sale, BACK + known.id if known.withdrawn else known.id, known.owed_units)

        async def work(transaction: SaleTransaction) -> None:
            locked, again = transaction.sales[sale.id], await transaction.adjustment(known.id)
            if again is None or again.owed_epoch != epoch:
                return
            if not paid and epoch is not None and locked.epoch <= epoch:
                raise EpochChanged(sale.id, sale.epoch, locked.epoch)
            await _put(transaction, replace(again, owed_epoch=None, owed_units=0), self._clock.now_ms())

        await self._orders.transact([sale.id], work)

    async def _adjust_slot(self, sale: Sale, adjustment_id: str, delta: int) -> bool:
        slot = Slot(sale_id=sale.id, segment=0, epoch=sale.epoch)
        reply = await self._stock.adjust(slot, adjustment_id, delta)
        if isinstance(reply, Lost):
            await self._directory.report_lost(sale, reply.found)
            raise Unavailable("stock", "Redis is being rebuilt")
        return not isinstance(reply, TooFewLeft)


async def _still(transaction: SaleTransaction, sale: Sale, known: Adjustment) -> tuple[Sale, Adjustment]:
    """The locked sale and the adjustment's row; EpochChanged unless authority and epoch are those that were seen."""
    locked = transaction.sales[sale.id]
    if (locked.authority, locked.epoch) != (sale.authority, sale.epoch):
        raise EpochChanged(sale.id, sale.epoch, locked.epoch)
    return locked, await transaction.adjustment(known.id) or known


def _withdrawn(adjustment: Adjustment) -> Adjustment:
    """A row without a delta says so to whoever comes again with its id."""
    return replace(adjustment, delta=0, applied=True)


def _owing(adjustment: Adjustment, locked: Sale, units: int) -> Adjustment:
    owes = units > 0 and locked.authority is Authority.REDIS
    return replace(adjustment, owed_epoch=locked.epoch if owes else None, owed_units=units if owes else 0)


async def _put(transaction: SaleTransaction, adjustment: Adjustment, at_ms: int) -> Adjustment:
    await transaction.put_adjustment(adjustment, at_ms)
    return adjustment
