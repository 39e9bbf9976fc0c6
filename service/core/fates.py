"""What becomes of a batch at the order transaction: one value, whatever parts its candidates were taken in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from service.domain.ids import BatchId
from service.domain.sale import Sale

PATIENCE_MS = 86_400_000
"""How long past its queue deadline a batch is tried that our rules cannot place, or SQL cannot hold: a day, in which a
restored database or a broken schema is mended. Then its message is dead, where a person can see and replay it."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Each of its candidates has what it is due: a row, or nothing for ever."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Not decidable now: it comes again, soon where its sale is on its way, else ever more rarely.

    `patience_ms` is the age at which it is given up; None: never.
    """

    why: str
    soon: bool = True
    patience_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Failed:
    """SQL refuses one of its candidates for good: tried again ever more rarely, up to the same age."""

    why: str
    patience_ms: int


Fate = Ended | Waiting | Failed
_GRAVITY = {Ended: 0, Waiting: 1, Failed: 2}


class Fates:
    """By batch id. Of a batch in parts the gravest counts: it has ended once all of it has."""

    def __init__(self, fates: Mapping[BatchId, Fate] | None = None) -> None:
        self._fates = dict(fates or {})

    def add(self, ids: Iterable[BatchId], fate: Fate) -> None:
        for id_ in ids:
            before = self._fates.get(id_)
            if before is None or _GRAVITY[type(before)] < _GRAVITY[type(fate)]:
                self._fates[id_] = fate

    def __getitem__(self, batch_id: BatchId) -> Fate:
        return self._fates[batch_id]

    def ended(self) -> frozenset[BatchId]:
        return frozenset(id_ for id_, fate in self._fates.items() if isinstance(fate, Ended))


def patience_ms(sale: Sale) -> int:
    return sale.rules.queue_deadline_s * 1000 + PATIENCE_MS
