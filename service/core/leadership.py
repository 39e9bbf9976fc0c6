"""The lease of a leader: renewed at a third of its life, released only by its owner (design §3.8)."""

from __future__ import annotations

import asyncio

from service.domain.errors import InDoubt
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.orders import LEADER_LEASE, SaleStore

LEASE_TTL_MS = 6_000
"""A dead leader is missed for this long at most."""


class Leadership:
    """Its own age is counted by the monotonic clock: after a step back of the wall clock it would believe for long that
    it leads. The row carries wall time, which is what processes have in common."""

    def __init__(self, sales: SaleStore, clock: Clock, owner: str, *, name: str = LEADER_LEASE) -> None:
        self._sales = sales
        self._clock = clock
        self._owner = owner
        self._name = name
        self._renewed_at_s: float | None = None
        self._may_own = False
        """Also where the answer was lost: then the row may be ours without our knowing."""
        self._one_at_a_time = asyncio.Lock()

    async def hold(self) -> bool:
        """Whether this process leads now; renews when a third of the lease is gone. Loops may share it."""
        async with self._one_at_a_time:
            return await self._hold()

    async def _hold(self) -> bool:
        began_s = self._clock.monotonic_s()
        if self._renewed_at_s is not None and began_s - self._renewed_at_s < LEASE_TTL_MS / 3000:
            return True
        led = self._renewed_at_s is not None
        self._may_own = True
        now_ms = self._clock.now_ms()
        try:
            owns = await self._sales.acquire_lease(self._name, self._owner, now_ms, LEASE_TTL_MS)
        except InDoubt:
            self._doubt(began_s)
            raise
        self._may_own = owns
        # An answer that took as long as the lease lives is worth nothing.
        leads = owns and self._clock.monotonic_s() - began_s < LEASE_TTL_MS / 1000
        self._renewed_at_s = began_s if leads else None
        if leads != led:
            self._note(leads=leads)
        return leads

    def _doubt(self, now_s: float) -> None:
        if self._renewed_at_s is not None and now_s - self._renewed_at_s >= LEASE_TTL_MS / 1000:
            self._renewed_at_s = None
            self._note(leads=False)

    async def release(self) -> None:
        """At a stop: the next leader need not wait for the lease to end. A store that is away does not hold up a
        stop."""
        async with self._one_at_a_time:
            led, self._renewed_at_s = self._renewed_at_s is not None, None
            if led:
                self._note(leads=False)
            if not self._may_own:
                return
            try:
                await self._sales.release_lease(self._name, self._owner)
                self._may_own = False
            except InDoubt as error:
                warn(Action.LOOP_FAILED, loop="release lease", error=str(error))

    def _note(self, *, leads: bool) -> None:
        metrics.LEADER.labels(self._name).set(int(leads))
        log(Action.LEADER, lease=self._name, owner=self._owner, leads=leads)
