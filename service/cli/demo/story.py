"""The demo's story: a sale opens, a crowd rushes it, winners pay or not, what comes back sells again, all adds up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.cli.demo.figures import Figures, Stopwatch, percentile
from service.cli.demo.plan import (
    CURRENCY,
    PRICE,
    SALE,
    first_wave_buyer,
    payment_window_s,
    second_wave,
    second_wave_buyer,
)
from service.cli.demo.report import Books, Report, books
from service.cli.demo.rush import WORKERS, Rush
from service.cli.demo.screen import Screen
from service.cli.demo.shop import DemoFailed, Shop
from service.cli.demo.tills import CLERKS, Tills
from service.cli.demo.witness import Witness
from service.domain.reservation import Status

READY_TIMEOUT_S = 60.0
QUIET_TIMEOUT_S = 45.0
LOOK_S = 0.2
SECOND_WAVES_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Cast:
    """How many, of what, and who: the seed decides what each buyer does."""

    buyers: int
    stock: int
    seed: int


@dataclass(slots=True)
class Story:
    """One run, from the opened sale to the report."""

    shop: Shop
    cast: Cast
    screen: Screen
    figures: Figures
    witness: Witness = field(default_factory=Witness)
    watch: Stopwatch = field(default_factory=Stopwatch)

    async def tell(self) -> Report:
        await self._open_sale()
        tills = Tills(shop=self.shop, witness=self.witness, figures=self.figures)
        async with _clerks(tills):
            losers, rush_s, requests = await self._first_wave(tills)
            async with self.screen.counting("Winners pay, cancel or forget", lambda: _at_tills(tills, self.figures)):
                await tills.queue.join()
            async with self.screen.counting("Forgotten units come back", lambda: f"{tills.lapsing:,} not yet"):
                await tills.serve_late()
            await self._second_waves(tills, losers)
        self.screen.say("Waiting until nothing is under way …")
        return self._report(tills, await self._quiet_books(), rush_s, requests / rush_s)

    async def _open_sale(self) -> None:
        await _until_ready(self.shop)
        rules = {
            "id": SALE,
            "sku": "demo-sneaker-42",
            "stock": self.cast.stock,
            "price": PRICE,
            "currency": CURRENCY,
            "limit_per_buyer": 1,
            "payment_window_s": payment_window_s(min(self.cast.stock, self.cast.buyers)),
        }
        await self.shop.operate("POST", "sales", rules)
        await self.shop.operate("POST", f"sales/{SALE}/warm", {})
        await self.shop.operate("POST", f"sales/{SALE}/open", {})
        await self._until_on_redis()
        self.screen.say(f"The sale is open: {self.cast.stock:,} units, {self.cast.buyers:,} buyers, one each.")

    async def _until_on_redis(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (await self.shop.operate("GET", f"sales/{SALE}"))["authority"] != "redis":
            if time.monotonic() > deadline:
                raise DemoFailed("The sale was not loaded into Redis in time.")
            await asyncio.sleep(LOOK_S)

    async def _first_wave(self, tills: Tills) -> tuple[list[int], float, int]:
        rush = Rush(shop=self.shop, witness=self.witness, figures=self.figures, won=tills.won)
        crowd = (first_wave_buyer(self.cast.seed, number) for number in range(self.cast.buyers))
        watch, before = Stopwatch(), self.figures.requests
        async with self.screen.following("The rush", rush, self.cast.buyers, self.figures):
            await rush.run(crowd)
        seconds, requests = watch.seconds, self.figures.requests - before
        await self._settle(tills, rush)
        return rush.losers, seconds, requests

    async def _second_waves(self, tills: Tills, losers: list[int]) -> None:
        """While anything is left, those who lost at first try again."""
        for _ in range(SECOND_WAVES_MAX):
            left = (await self._books()).available
            again = second_wave(losers, left)
            if not again:
                return
            losers = losers[len(again) :]
            rush = Rush(shop=self.shop, witness=self.witness, figures=self.figures, won=tills.won)
            self.screen.say(f"{left:,} units are for sale again: {len(again):,} who lost try once more.")
            told_before = self.figures.refused
            crowd = (second_wave_buyer(self.cast.seed, number) for number in again)
            async with self.screen.following("Once more", rush, len(again), self.figures):
                await rush.run(crowd, min(WORKERS, len(again)))
            self.figures.refused = told_before - (len(again) - len(rush.losers))
            await self._settle(tills, rush)
            await tills.queue.join()
            losers += rush.losers

    async def _settle(self, tills: Tills, rush: Rush) -> None:
        for buyer in rush.undecided:
            await tills.settle(buyer)

    async def _books(self) -> Books:
        return books(await self.shop.operate("GET", f"sales/{SALE}/ledger"))

    async def _quiet_books(self) -> Books:
        """The books once nothing is under way; at the latest after the time-out, as they are then."""
        deadline = time.monotonic() + QUIET_TIMEOUT_S
        while True:
            found = await self._books()
            at_rest = found.quiet and found.balanced and found.awaiting_payment == 0
            if at_rest or time.monotonic() > deadline:
                return found
            await asyncio.sleep(LOOK_S)

    def _report(self, tills: Tills, found: Books, rush_s: float, rate: float) -> Report:
        figures, told = self.figures, self.witness.statuses()
        reasons = tills.reasons
        return Report(
            buyers=self.cast.buyers,
            stock=self.cast.stock,
            seed=self.cast.seed,
            accepted=figures.accepted,
            refused=figures.refused,
            retries=dict(figures.retries),
            asked_again=figures.asked_again,
            told_again=dict(figures.told_again.most_common()),
            replayed=figures.replayed,
            paid=told[Status.PAID],
            cancelled=reasons.get("buyer_cancelled", 0),
            expired=reasons.get("payment_timeout", 0),
            paid_late=figures.paid_late,
            refunds_told=figures.refunds,
            resold=max(0, figures.accepted - self.cast.stock),
            lost=len(tills.forgotten),
            in_doubt=figures.in_doubt,
            contradictions=tuple(self.witness.contradictions),
            unexpected=dict(figures.unexpected),
            accept_p50_ms=percentile(figures.accept_ms, 0.50),
            accept_p99_ms=percentile(figures.accept_ms, 0.99),
            rush_s=rush_s,
            rush_requests_per_s=rate,
            total_s=self.watch.seconds,
            books=found,
        )


def _at_tills(tills: Tills, figures: Figures) -> str:
    return f"{tills.served:,} of {figures.accepted:,} have"


@asynccontextmanager
async def _clerks(tills: Tills) -> AsyncIterator[None]:
    """Clerks serve as long as the block runs; one that fails ends the demo."""
    async with asyncio.TaskGroup() as group:
        clerks = [group.create_task(tills.clerk()) for _ in range(CLERKS)]
        yield
        for clerk in clerks:
            clerk.cancel()


async def _until_ready(shop: Shop) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while (answer := await shop.ready()).status != 200:  # noqa: PLR2004 - HTTP's own number
        if time.monotonic() > deadline:
            raise DemoFailed(f"The server is not ready after {READY_TIMEOUT_S:.0f} s: {answer.body}")
        await asyncio.sleep(LOOK_S)
