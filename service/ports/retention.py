"""What may be forgotten, as the core sees it. In pieces: no delete holds a lock for long."""

from __future__ import annotations

from typing import Protocol


class Retention(Protocol):
    """Orders, payments, refunds, audit, replays, reviews, the ledger (`stock_movements`) stay: they are the books."""

    async def forget_sent_events(self, created_before_ms: int, limit: int) -> int:
        """Outbox rows that were sent, the oldest first; how many went."""

    async def forget_decisions(self, settled_before_ms: int, limit: int) -> int:
        """Who lost in batches of sales settled before this, none of whose candidates may still become an order; how
        many batches went."""
