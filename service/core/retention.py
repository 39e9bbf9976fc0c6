"""What has done its service is deleted, in bounded pieces: else the outbox alone grows by four rows an order, for ever.

Orders, payments, refunds, audit and the ledger (`stock_movements`) stay: they are the books.
"""

from __future__ import annotations

from service.ports.clock import Clock
from service.ports.retention import Retention

ROWS_A_TURN = 1_000
"""Of each table: about a tenth of a second of the database's time. A full turn is followed by the next at once."""
INTERVAL_S = 60.0
DAY_MS = 86_400_000


class RetentionSweep:
    def __init__(self, retention: Retention, clock: Clock, *, days: int) -> None:
        self._retention = retention
        self._clock = clock
        self._kept_ms = days * DAY_MS

    async def turn(self) -> int:
        before_ms = self._clock.now_ms() - self._kept_ms
        events = await self._retention.forget_sent_events(before_ms, ROWS_A_TURN)
        decisions = await self._retention.forget_decisions(before_ms, ROWS_A_TURN)
        return max(events, decisions)
