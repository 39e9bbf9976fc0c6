"""The names of a slot's keys: all in one hash slot `{sale:segment}`, all carrying the epoch (design §3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.stock import Slot

META = "meta"
"""The stamp, unlinked first of an epoch's keys: a stale script must not find a valid epoch without records."""

DATA = (
    "stock",
    "records",
    "buyers",
    "batches",
    "bodies",
    "pending",
    "undelivered",
    "fences",
    "adjustments",
)
"""Everything else of a slot. `pending` counts a batch's queued winners; what each holds is told in scripts/lua."""


def key(slot: Slot, name: str) -> str:
    return f"dg:{{{slot.sale_id}:{slot.segment}}}:{slot.epoch}:{name}"


def keys(slot: Slot, names: Sequence[str]) -> list[str]:
    return [key(slot, name) for name in names]
