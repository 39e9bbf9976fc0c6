"""An operator's use cases on a sale: create, warm, open, close, settle, adjust; and what the public sees of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from service.core.adjusting import Adjusting
from service.core.directory import SaleDirectory
from service.domain.errors import Conflict, InvalidRequest, NotFound, StockUnavailable
from service.domain.ids import SALE_ID, SaleId
from service.domain.road import wanted_authority
from service.domain.sale import SALE_TRANSITIONS, Authority, Sale, SaleRules, SaleStatus
from service.domain.stock import Slot, SlotCount
from service.observability.actions import Action
from service.observability.log import log
from service.ports.clock import Clock
from service.ports.orders import OrderStore, SaleStore, SaleTransaction
from service.ports.stock import Stock

WARM_WAIT_S = 10.0
"""How long `warm` waits for the keeper to have loaded Redis; it goes on after that."""
WARM_LOOK_S = 0.1
LOW_SHARE = 0.1
"""At or below this share of its units a sale's stock level is `low`."""

LEVEL_AGE_MAX_S = 1.0
"""As long as the public view may be cached (design §5)."""


class StockLevel(StrEnum):
    IN_STOCK = "in_stock"
    LOW = "low"
    SOLD_OUT = "sold_out"


@dataclass(frozen=True, kw_only=True)
class PublicSale:
    sale: Sale
    stock_level: StockLevel


@dataclass(frozen=True, kw_only=True)
class _Seen:
    epoch: int
    at_s: float
    left: int


class SaleService:
    def __init__(
        self,
        *,
        sales: SaleStore,
        orders: OrderStore,
        directory: SaleDirectory,
        stock: Stock,
        adjusting: Adjusting,
        clock: Clock,
    ) -> None:
        self._orders = orders
        self._sales = sales
        self._directory = directory
        self._stock = stock
        self._adjusting = adjusting
        self._clock = clock
        self._seen: dict[SaleId, _Seen] = {}
        """One entry a sale that exists, and those are bounded (SALES_MAX)."""

    async def create(self, sale_id: SaleId, rules: SaleRules, actor: str) -> Sale:
        """A draft. The same again is the same; Conflict `sale_exists` where the id has other rules."""
        if not SALE_ID.fullmatch(sale_id):
            raise InvalidRequest("id", "1-48 characters of a-z, 0-9, - and _, beginning with a letter or digit")
        sale = await self._sales.create(sale_id, rules, self._clock.now_ms())
        await self._directory.refresh()
        return await self._noted(sale, "create", actor)

    async def get(self, sale_id: SaleId) -> Sale:
        return await self._directory.current(sale_id)

    async def list(self) -> Sequence[Sale]:
        return await self._sales.sales()

    async def public(self, sale_id: SaleId) -> PublicSale:
        """From this process's view, and the slots' own counters; `low` from a tenth of the stock on."""
        sale = await self._viewed(sale_id)
        left = await self._left_lately(sale)
        if left <= 0:
            level = StockLevel.SOLD_OUT
        elif left <= sale.capacity * LOW_SHARE:
            level = StockLevel.LOW
        else:
            level = StockLevel.IN_STOCK
        return PublicSale(sale=sale, stock_level=level)

    async def warm(self, sale_id: SaleId, actor: str) -> Sale:
        """Ready to sell: the keeper takes it to its authority. Repeatable, also while it sells: live stock is not
        touched (F30)."""
        sale = await self._act(sale_id, "warm", actor)
        await self._sales.want_redis(sale_id)
        return await self._until_warm(sale)

    async def open(self, sale_id: SaleId, *, warm: bool, actor: str) -> Sale:
        """Sells inside its window. Conflict `sale_not_warm` where it is not loaded, unless `warm` says to do both."""
        sale = await self.get(sale_id)
        if warm:
            sale = await self.warm(sale_id, actor)
        elif sale.status not in {SaleStatus.DRAFT, SaleStatus.SETTLED} and not is_warm(sale):
            raise Conflict("sale_not_warm", sale_id=sale_id)
        return await self._act(sale_id, "open", actor)

    async def close(self, sale_id: SaleId, actor: str) -> Sale:
        return await self._act(sale_id, "close", actor)

    async def settle(self, sale_id: SaleId, actor: str) -> Sale:
        """For good: the keeper takes the authority back to SQL and drops what Redis holds."""
        return await self._act(sale_id, "settle", actor)

    async def adjust(self, sale_id: SaleId, adjustment_id: str, delta: int, actor: str) -> Sale:
        """Units come or go. Conflict `sale_is_settled`: it is over for good, and its books with it."""
        sale = await self.get(sale_id)
        _refuse_settled(sale)
        return await self._adjusting.adjust(sale, adjustment_id, delta, actor)

    async def change_rules(self, sale_id: SaleId, changes: Mapping[str, object], actor: str) -> Sale:
        """Window, limit, payment window and so on. Stock changes by `adjust` only."""

        def change(sale: Sale) -> SaleRules:
            _refuse_settled(sale)
            rules = replace(sale.rules, **changes)  # type: ignore[arg-type]  # api/bodies.py checked names and types
            _check_change(sale, rules)
            return rules

        sale = await self._sales.change_rules(sale_id, change, self._clock.now_ms())
        await self._directory.refresh()
        return await self._noted(sale, "change_rules", actor)

    # ------------------------------------------------------------------------------------------------------------------

    async def _act(self, sale_id: SaleId, act: str, actor: str) -> Sale:
        sale = await self.get(sale_id)
        after = SALE_TRANSITIONS.get((sale.status, act))
        if after is None:
            raise Conflict(f"sale_is_{sale.status.value}", sale_id=sale_id)
        if not await self._sales.set_status(sale_id, sale.status, after, self._clock.now_ms()):
            raise Conflict("sale_changed_meanwhile", sale_id=sale_id)
        await self._directory.refresh()
        return await self._noted(await self.get(sale_id), act, actor)

    async def _until_warm(self, sale: Sale) -> Sale:
        until_s = self._clock.monotonic_s() + WARM_WAIT_S
        while not is_warm(sale) and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(WARM_LOOK_S)
            sale = await self.get(sale.id)
        await self._directory.refresh()
        return sale

    async def _viewed(self, sale_id: SaleId) -> Sale:
        try:
            return self._directory.selling(sale_id)
        except NotFound:
            return await self.get(sale_id)

    async def _left_lately(self, sale: Sale) -> int:
        """Anyone may ask, so the slots are asked once a second at most, however many do."""
        now_s = self._clock.monotonic_s()
        seen = self._seen.get(sale.id)
        if seen is None or seen.epoch != sale.epoch or now_s - seen.at_s > LEVEL_AGE_MAX_S:
            seen = self._seen[sale.id] = _Seen(epoch=sale.epoch, at_s=now_s, left=await self._left(sale))
        return seen.left

    async def _left(self, sale: Sale) -> int:
        if sale.authority is not Authority.REDIS:
            return sale.available
        left = 0
        for segment in range(sale.segments):
            try:
                count = await self._stock.count(Slot(sale_id=sale.id, segment=segment, epoch=sale.epoch))
            except StockUnavailable:
                return sale.available
            left += count.available if isinstance(count, SlotCount) else 0
        return left

    async def _noted(self, sale: Sale, act: str, actor: str) -> Sale:
        """An operator's act leaves an audit row and a log line, with the sale as it is after it."""
        log(Action.SALE_CHANGED, sale_id=sale.id, act=act, actor=actor, status=sale.status, epoch=sale.epoch)
        detail = {"status": sale.status.value, "authority": sale.authority.value, "epoch": sale.epoch}

        async def work(transaction: SaleTransaction) -> None:
            await transaction.audit(actor, act, sale.id, why="", detail=detail, at_ms=self._clock.now_ms())

        await self._orders.transact([], work)
        return sale


def is_warm(sale: Sale) -> bool:
    wanted = Authority.SQL if sale.rules.wanted_authority is Authority.SQL else Authority.REDIS
    return sale.wants_redis and sale.authority is wanted and wanted_authority(sale) is wanted


UNOPENED = frozenset({SaleStatus.DRAFT, SaleStatus.READY})
"""Nobody was ever answered under the rules of such a sale. No sale comes back to it."""


def _refuse_settled(sale: Sale) -> None:
    if sale.status is SaleStatus.SETTLED:
        raise Conflict("sale_is_settled", sale_id=sale.id)


def _check_change(sale: Sale, rules: SaleRules) -> None:
    """InvalidRequest where the new rules would contradict themselves, or what buyers have been told (I7)."""
    if rules.opens_at_ms is not None and rules.closes_at_ms is not None and rules.closes_at_ms <= rules.opens_at_ms:
        raise InvalidRequest("closes_at", "must be after opens_at")
    if sale.status in UNOPENED:
        return
    for field in ("price", "currency"):
        if getattr(rules, field) != getattr(sale.rules, field):
            raise InvalidRequest(field, "is fixed once the sale has opened: buyers were told their amounts")
    if rules.limit_per_buyer < sale.rules.limit_per_buyer:
        raise InvalidRequest("limit_per_buyer", "only grows once the sale has opened: buyers may hold that many")
