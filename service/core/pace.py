"""How many candidates of a sale go into one order transaction, once one of them was not done in time."""

from __future__ import annotations

from service.domain.ids import SaleId

PART_S = 2.0
"""For one transaction of a sale that was late: several have time in one receive, and one that is stuck costs the
others that much."""
FULL = 2_048
"""As many as a receive brings (16 batches of 128): a sale that gets so far is like all others again."""
SHRINK = 4
"""Found in a few steps from FULL down, whatever the database can do."""
SMALL = 16
"""So few that are late are not too many: the row is stuck, and smaller ones would only wait there, too."""
REMEMBERED_MAX = 500
"""Sales. With more than that late it is no single sale's trouble."""


class Pace:
    """Remembers the sales that were late, and only those. One instance lives as long as its process."""

    def __init__(self) -> None:
        self._most: dict[SaleId, int] = {}

    def is_slow(self, sale_id: SaleId) -> bool:
        return sale_id in self._most

    def most(self, sale_id: SaleId) -> int:
        return self._most.get(sale_id, FULL)

    def late(self, sale_id: SaleId, count: int) -> bool:
        """So many were too many. False: they were so few that fewer would not help now."""
        self._most.pop(sale_id, None)
        self._most[sale_id] = max(1, count // SHRINK)
        while len(self._most) > REMEMBERED_MAX:
            del self._most[next(iter(self._most))]
        return count > SMALL

    def in_time(self, sale_id: SaleId, took_s: float) -> None:
        """Twice as many next time, where they have time for it with something to spare."""
        if sale_id not in self._most or took_s > PART_S / 4:
            return
        self._most[sale_id] *= 2
        if self._most[sale_id] >= FULL:
            del self._most[sale_id]
