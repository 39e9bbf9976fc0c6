"""What a replay does to one item. Nothing here makes orders or verdicts of its own: a batch goes through the order
transaction, which is right however often it runs; a discarded half message goes back to the broker, whose check-back
decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from service.core.directory import SaleDirectory
from service.core.fates import Ended, Failed, Fate, Waiting
from service.core.order_intake import OrderIntake
from service.core.replay_cases import Case, DecideLetter, Forget, MakeOrders, Resume
from service.core.standings import Standings
from service.domain.batch import BatchMessage
from service.domain.errors import BrokerRefused, BrokerUnavailable, InDoubt, NotFound
from service.domain.replay import LOOK_MAX, Item, Outcome, ReplayId, Source, settle
from service.domain.replay_plan import taken_by
from service.ports.messaging import Transport


class ReplayActs:
    """`group` is the order consumers'. `standings`: those of a new look."""

    def __init__(
        self,
        *,
        intake: OrderIntake,
        transport: Transport,
        group: str,
        directory: SaleDirectory,
        standings: Callable[[], Standings],
    ) -> None:
        self._intake = intake
        self._transport = transport
        self._group = group
        self._directory = directory
        self._standings = standings

    async def act(self, case: Case) -> Item:
        """The item as the act left it. `waiting` says that nothing was done; where no reply says so, a COMMIT or a
        message may have gone through, and how it ended is for its reservations to say."""
        try:
            return await self._act(case)
        except BrokerRefused as error:
            return replace(case.item, outcome=Outcome.WAITING, why=str(error))
        except InDoubt as error:
            return _pending(case.item, f"It may be done, or not: {error}")

    async def as_they_stand(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Each of their reservations as the stores show it now, and a pending item as they say it ended. One look."""
        standings = self._standings()
        return tuple([await self._as_it_stands(item, standings) for item in items])

    async def _as_it_stands(self, item: Item, standings: Standings) -> Item:
        if item.sale_id is None or not item.reservations:
            return item
        try:
            sale = await self._directory.current(item.sale_id)
        except NotFound:
            return item
        stand = await standings.of(sale, [now.reservation_id for now in item.reservations], epoch=item.epoch)
        losers = frozenset() if item.batch_id is None else await standings.losers(item.batch_id)
        return settle(item, stand.reservations, losers)

    async def _now(self, item: Item) -> Item:
        return await self._as_it_stands(item, self._standings())

    async def _act(self, case: Case) -> Item:
        match case.act:
            case MakeOrders(claims=claims):
                fates = await self._intake.decide_stored([claims])
                return await self._after(case.item, fates[claims.batch_id])
            case DecideLetter(batch=batch):
                return await self._decide_letter(case.item, batch)
            case Resume():
                return await self._resume(case.item)
            case Forget(source=source):
                await self._forget(source, case.item)
                return case.item
            case None:
                return case.item
            case unreachable:
                assert_never(unreachable)

    async def _after(self, item: Item, fate: Fate) -> Item:
        """How it ended is for its reservations to say."""
        match fate:
            case Ended():
                return await self._now(_pending(item, "Its reservations do not say yet how it ended."))
            case Waiting(why=why) | Failed(why=why):
                return replace(item, outcome=Outcome.WAITING, why=f"It cannot be decided now: {why}.")
            case unreachable:
                assert_never(unreachable)

    async def _decide_letter(self, item: Item, batch: BatchMessage) -> Item:
        """Off the list once it is decided, and not before. Nothing is published again."""
        fates = await self._intake.decide([batch])
        after = await self._after(item, fates[batch.batch_id])
        if after.outcome is Outcome.WAITING:
            return after
        try:
            await self._forget(Source.DEAD_LETTER, after)
        except BrokerUnavailable as error:
            return replace(after, why=f"{after.why} It stays on the broker's list: {error}")
        return after

    async def _resume(self, item: Item) -> Item:
        """Accepted is not committed."""
        message_id = item.message_id or ""
        try:
            await self._transport.resume_discarded(message_id)
        except BrokerRefused as error:
            return await self._refused(item, error)
        except BrokerUnavailable as error:
            return _pending(item, f"The broker may have it again, or not: {error}")
        return _pending(item, "The broker has it again and asks about it. That is not its end: look again.")

    async def _refused(self, item: Item, error: BrokerRefused) -> Item:
        try:
            listed = await self._transport.discarded(LOOK_MAX)
        except BrokerUnavailable:
            raise error from None
        if any(half.message_id == item.message_id for half in listed):
            return replace(item, outcome=Outcome.WAITING, why=str(error))
        return await self._now(_pending(item, "Somebody else dealt with it a moment ago."))

    async def _forget(self, source: Source, item: Item) -> None:
        message_id = item.message_id or ""
        if source is Source.DISCARDED:
            await self._transport.forget_discarded(message_id)
        else:
            await self._transport.forget_dead_letter(self._group, message_id)


def resumed_by(item: Item, holder: ReplayId) -> Item:
    return _pending(item, taken_by(holder))


def _pending(item: Item, why: str) -> Item:
    return replace(item, outcome=Outcome.PENDING, why=why)
