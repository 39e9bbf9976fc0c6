"""The leader on the road of a sale's authority: loss -> sql -> loading -> redis (design §3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

from service.core.apart import AT_ONCE, note_failure
from service.core.drain import Drain
from service.core.load import Loader
from service.core.unlinking import LATE_MS
from service.domain.errors import DropgateError, StockUnavailable, Unavailable
from service.domain.ids import SaleId
from service.domain.road import Health, Step, next_step, wanted_authority
from service.domain.sale import Authority, Sale, ServerIds
from service.domain.stock import Lost, Slot, slots_of
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.orders import SaleStore
from service.ports.stock import Stock

LOOP = "authority"
TURN_S = 2.0
"""A turn waits no longer for its steps: what takes more (a load) goes on beside the turns that follow."""
STEP_S = 30.0
"""One step that is not a load: a few calls, each with a deadline of its own."""
LOAD_S = 300.0
"""A load: a million decided ids take about a minute. What takes longer never ends, and another attempt begins."""
LOADS_AT_ONCE = 4
"""Each holds one sale's orders in memory."""


class AuthorityRoad:
    """All sales share the Redis of this process: it is asked once a turn who it is, and only the stamps sale by sale.

    A step under way keeps its own sale busy and no other: neither a big load nor a silent Redis holds up the rest.
    """

    def __init__(
        self, *, sales: SaleStore, stock: Stock, loader: Loader, drain: Drain, clock: Clock, leader: str
    ) -> None:
        self._sales = sales
        self._stock = stock
        self._loader = loader
        self._drain = drain
        self._clock = clock
        self._leader = leader
        self._steps_at_once = asyncio.Semaphore(AT_ONCE)
        self._loads_at_once = asyncio.Semaphore(LOADS_AT_ONCE)
        self._under_way: dict[SaleId, asyncio.Task[bool | DropgateError]] = {}
        self._away_since_s: dict[SaleId, float] = {}
        """Since when a sale's Redis has not answered; one entry a sale at most."""

    async def turn(self) -> int:
        """One step for each sale; the number of steps that ended. Raises only where all that ended have failed."""
        sales = [sale for sale in await self._sales.sales() if _concerns_redis(sale)]
        server = await self._ask_server(sales)
        for sale in sales:
            if sale.id not in self._under_way:
                self._under_way[sale.id] = asyncio.create_task(self._apart(sale, server), name=f"road:{sale.id}")
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=TURN_S)
        return self._ended_steps()

    async def close(self) -> None:
        """What is under way is cut off: the next leader begins it anew."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._under_way.clear()

    def _ended_steps(self) -> int:
        ended = [sale_id for sale_id, task in self._under_way.items() if task.done()]
        outcomes = [self._under_way.pop(sale_id).result() for sale_id in ended]
        failures = [outcome for outcome in outcomes if isinstance(outcome, DropgateError)]
        if failures and len(failures) == len(outcomes):
            raise failures[0]
        return sum(outcome is True for outcome in outcomes)

    async def _apart(self, sale: Sale, server: ServerIds | None) -> bool | DropgateError:
        try:
            return await self._step(sale, server)
        except DropgateError as error:
            failure = error
        except TimeoutError:
            failure = Unavailable(LOOP, "a step took too long")
        note_failure(LOOP, sale.id, failure)
        return failure

    async def _step(self, sale: Sale, server: ServerIds | None) -> bool:
        """One step of one sale, as `domain.road.next_step` says."""
        async with self._steps_at_once, asyncio.timeout(STEP_S):
            health = await self._health(sale, server)
            step = next_step(sale, health, drained=await self._drain.is_over(sale))
            match step:
                case Step.STAY:
                    return False
                case Step.DISMISS_REPORT:
                    await self._dismiss(sale)
                case Step.LEAVE_REDIS | Step.GIVE_UP_LOADING:
                    await self._leave(sale)
                case Step.BEGIN_LOADING:
                    pass
                case unreachable:
                    assert_never(unreachable)
        if step is Step.BEGIN_LOADING:
            async with self._loads_at_once, asyncio.timeout(LOAD_S):
                await self._load(sale)
        return True

    # --- what the leader sees -----------------------------------------------------------------------------------------

    async def _ask_server(self, sales: Sequence[Sale]) -> ServerIds | None:
        """Who answers now; None: nobody, for all of these sales alike."""
        ids = {sale.id for sale in sales}
        self._away_since_s = {id_: since_s for id_, since_s in self._away_since_s.items() if id_ in ids}
        if not sales:
            return None
        try:
            return await self._stock.server_ids(slots_of(sales[0].id, sales[0].epoch, 1)[0])
        except StockUnavailable as error:
            warn(Action.LOOP_FAILED, loop=LOOP, error=str(error))
            now_s = self._clock.monotonic_s()
            for sale in sales:
                self._away_since_s.setdefault(sale.id, now_s)
            return None

    async def _health(self, sale: Sale, server: ServerIds | None) -> Health:
        """A server that says who it is may still refuse the scripts, while it reads its data from disk for example."""
        try:
            stamped = server is not None and await self._stamped(sale)
        except StockUnavailable:
            self._away_since_s.setdefault(sale.id, self._clock.monotonic_s())
            server, stamped = None, False
        if server is None:
            now_s = self._clock.monotonic_s()
            return Health(server=None, stamped=False, away_s=now_s - self._away_since_s.get(sale.id, now_s))
        self._away_since_s.pop(sale.id, None)
        return Health(server=server, stamped=stamped)

    async def _stamped(self, sale: Sale) -> bool:
        if sale.authority is not Authority.REDIS:
            return False
        for slot in slots_of(sale.id, sale.epoch, sale.segments):
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
            slots = slots_of(sale.id, sale.epoch, sale.segments)
            await asyncio.gather(*[self._unstamp(slot) for slot in slots])
        left = await self._change(sale, Authority.SQL)
        if left is not None and sale.authority is Authority.REDIS and wanted_authority(sale) is Authority.REDIS:
            metrics.LOSSES.labels(sale.id).inc()

    async def _unstamp(self, slot: Slot) -> None:
        """What fails here is owed (core/unlinking.py). Who is away for the leader may answer a sleeper: core/attempt.py
        looks at the row's age again."""
        try:
            await self._stock.unlink(slot)
        except StockUnavailable as error:
            warn(Action.LOOP_FAILED, loop=LOOP, sale_id=slot.sale_id, segment=slot.segment, error=str(error))

    async def _load(self, sale: Sale) -> None:
        loading = await self._change(sale, Authority.LOADING)
        if loading is None:
            return
        arrived = False
        try:
            refused = await self._loader.load(loading)
            if refused is None:
                arrived = await self._change(loading, Authority.REDIS) is not None
            else:
                warn(
                    Action.LOAD_FAILED,
                    sale_id=sale.id,
                    epoch=loading.epoch,
                    run_id=refused.found.run_id,
                    stamped=refused.stamped,
                )
        finally:
            if not arrived:
                # Whoever slept in mid-load may have written into an epoch whose keys were unlinked meanwhile.
                await self._sales.owe_unlink(sale.id, loading.epoch, self._clock.now_ms() + LATE_MS)

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


def _concerns_redis(sale: Sale) -> bool:
    """The others' home is SQL, and they are there: nothing to ask Redis about."""
    return sale.authority is not Authority.SQL or wanted_authority(sale) is not Authority.SQL
