"""The leader on the road of a sale's authority: loss -> sql -> loading -> redis (design §3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

from service.core.load import Loader
from service.domain.errors import StockUnavailable, Unavailable
from service.domain.ids import SaleId
from service.domain.road import Health, Step, next_step, wanted_authority
from service.domain.sale import Authority, Sale
from service.domain.stock import Lost, Slot
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.messaging import Topic, Transport
from service.ports.orders import LEADER_LEASE, SaleStore
from service.ports.stock import Stock


class Drain:
    """Whether older messages have had their turn with the order transaction: they come before new buyers."""

    def __init__(self, transport: Transport, order: Topic, clock: Clock, *, timeout_s: float) -> None:
        self._transport = transport
        self._order = order
        self._clock = clock
        self._timeout_ms = int(timeout_s * 1000)

    async def is_over(self, sale: Sale) -> bool:
        if sale.authority is not Authority.SQL or sale.older_deadline_ms is None:
            return True
        if self._clock.now_ms() >= sale.epoch_started_at_ms + self._timeout_ms:
            return True
        backlog = await self._transport.backlog(self._order.name, self._order.group or "")
        return backlog.undelivered == 0 and not backlog.halves


class AuthorityRoad:
    def __init__(
        self,
        *,
        sales: SaleStore,
        stock: Stock,
        loader: Loader,
        drain: Drain,
        clock: Clock,
        leader: str,
    ) -> None:
        self._sales = sales
        self._stock = stock
        self._loader = loader
        self._drain = drain
        self._clock = clock
        self._leader = leader
        self._away_since_s: dict[SaleId, float] = {}
        """Since when a sale's Redis has not answered; one entry a sale at most."""

    async def turn(self) -> int:
        """One step for each sale; the number of steps taken. One sale's trouble does not hold up the others."""
        steps = 0
        failure: Unavailable | None = None
        for sale in await self._sales.sales():
            try:
                steps += await self.step(sale)
            except Unavailable as error:
                failure = error
        if failure is not None:
            raise failure
        return steps

    async def step(self, sale: Sale) -> bool:
        """One step of one sale, as `domain.road.next_step` says."""
        health = await self._health(sale)
        step = next_step(sale, health, drained=await self._drain.is_over(sale))
        match step:
            case Step.STAY:
                return False
            case Step.DISMISS_REPORT:
                await self._dismiss(sale)
            case Step.LEAVE_REDIS | Step.GIVE_UP_LOADING:
                await self._leave(sale)
            case Step.BEGIN_LOADING:
                await self._begin_loading(sale)
            case unreachable:
                assert_never(unreachable)
        return True

    # --- what the leader sees -----------------------------------------------------------------------------------------

    async def _health(self, sale: Sale) -> Health:
        """Asks Redis only what this sale's step depends on: there may be a thousand sales, twice a second."""
        wants_nothing = sale.authority is not Authority.REDIS and wanted_authority(sale) is Authority.SQL
        if wants_nothing:
            return Health(server=None, stamped=False)
        slots = [Slot(sale_id=sale.id, segment=number, epoch=sale.epoch) for number in range(sale.segments)]
        try:
            server = await self._stock.server_ids(slots[0])
            health = Health(server=server, stamped=await self._stamped(sale, slots))
            self._away_since_s.pop(sale.id, None)
            return health
        except StockUnavailable:
            now_s = self._clock.monotonic_s()
            return Health(server=None, stamped=False, away_s=now_s - self._away_since_s.setdefault(sale.id, now_s))

    async def _stamped(self, sale: Sale, slots: Sequence[Slot]) -> bool:
        if sale.authority is not Authority.REDIS:
            return False
        for slot in slots:
            if isinstance(await self._stock.count(slot), Lost):
                return False
        return True

    # --- what the leader does -----------------------------------------------------------------------------------------

    async def _dismiss(self, sale: Sale) -> None:
        metrics.MISROUTED.inc()
        warn(Action.LOST_DISMISSED, sale_id=sale.id, epoch=sale.epoch, run_id=sale.lost.run_id if sale.lost else None)
        await self._sales.dismiss_lost(sale.id, sale.epoch)

    async def _leave(self, sale: Sale) -> None:
        """To SQL. The slots lose their stamp first, wherever Redis still answers (docs/model: meta taken away first).

        Else a process that slept before its reserve call would deduct from keys that are still in order, and tell
        `queued` of an id that SQL has ended meanwhile.
        """
        if sale.authority is Authority.REDIS:
            await self._unstamp(sale)
        left = await self._change(sale, Authority.SQL)
        if left is not None and sale.authority is Authority.REDIS and wanted_authority(sale) is Authority.REDIS:
            metrics.LOSSES.labels(sale.id).inc()

    async def _unstamp(self, sale: Sale) -> None:
        for segment in range(sale.segments):
            try:
                await self._stock.unlink(Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch))
            except StockUnavailable as error:
                # Who is away for the leader may answer a sleeper: core/attempt.py looks at the row's age again.
                warn(Action.LOOP_FAILED, loop="authority", sale_id=sale.id, error=str(error))

    async def _begin_loading(self, sale: Sale) -> None:
        loading = await self._change(sale, Authority.LOADING)
        if loading is None:
            return
        refused = await self._loader.load(loading)
        if refused is not None:
            warn(
                Action.LOAD_FAILED,
                sale_id=sale.id,
                epoch=loading.epoch,
                run_id=refused.found.run_id,
                stamped=refused.stamped,
            )
            return
        if await self._change(loading, Authority.REDIS) is not None:
            await self._unlink_older(loading)

    async def _change(self, sale: Sale, to: Authority) -> Sale | None:
        changed = await self._sales.change_authority(
            sale.id,
            leader=self._leader,
            expected=(sale.authority, sale.epoch),
            to=to,
            now_ms=self._clock.now_ms(),
        )
        if changed is not None:
            log(Action.AUTHORITY_CHANGED, sale_id=sale.id, was=sale.authority, now=to, epoch=changed.epoch)
        return changed

    async def _unlink_older(self, sale: Sale) -> None:
        """The keys of the two epochs before this one: of the last attempt and of the authority before it."""
        for epoch in range(max(1, sale.epoch - 2), sale.epoch):
            for segment in range(sale.segments):
                await self._stock.unlink(Slot(sale_id=sale.id, segment=segment, epoch=epoch))


LEASE_TTL_MS = 6_000
"""A dead leader is missed for this long at most."""


class Leadership:
    """The keeper's lease: renewed at a third of its life, released only by its owner (design §3.8)."""

    def __init__(self, sales: SaleStore, clock: Clock, owner: str, *, name: str = LEADER_LEASE) -> None:
        self._sales = sales
        self._clock = clock
        self._owner = owner
        self._name = name
        self._renewed_at_ms: int | None = None
        self._one_at_a_time = asyncio.Lock()

    async def hold(self) -> bool:
        """Whether this process leads now; renews when a third of the lease is gone. Loops may share it."""
        async with self._one_at_a_time:
            return await self._hold()

    async def _hold(self) -> bool:
        now_ms = self._clock.now_ms()
        if self._renewed_at_ms is not None and now_ms - self._renewed_at_ms < LEASE_TTL_MS // 3:
            return True
        led = self._renewed_at_ms is not None
        leads = await self._sales.acquire_lease(self._name, self._owner, now_ms, LEASE_TTL_MS)
        self._renewed_at_ms = now_ms if leads else None
        if leads != led:
            metrics.LEADER.labels(self._name).set(int(leads))
            log(Action.LEADER, lease=self._name, owner=self._owner, leads=leads)
        return leads

    async def release(self) -> None:
        if self._renewed_at_ms is not None:
            await self._sales.release_lease(self._name, self._owner)
            self._renewed_at_ms = None
