"""A replay as the command line shows it; the names are those of the operator's API."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from service.domain.event import rfc3339
from service.domain.replay import Item, Now, Outcome, Replay, Scope, Source

NAMES = {
    Source.IN_DOUBT: "No decided batch without orders is there.",
    Source.DISCARDED: "No discarded half message is there.",
    Source.DEAD_LETTER: "No dead letter of the order group is there.",
}
"""What an empty look says."""
LOOK_FURTHER = (
    "None was found among those that were looked at, and there are more: name a sale or an id, or look again."
)


def replay_json(replay: Replay) -> dict[str, object]:
    return {
        "id": replay.id,
        "dry_run": replay.dry_run,
        "scope": _scope(replay.scope),
        "why": replay.why,
        "actor": replay.actor,
        "created_at": rfc3339(replay.created_at_ms),
        "finished_at": None if replay.finished_at_ms is None else rfc3339(replay.finished_at_ms),
        "more": replay.more,
        "outcomes": dict(sorted(Counter(item.outcome.value for item in replay.items).items())),
        "items": [_item(item, _now_ms()) for item in replay.items],
    }


def replay_rows(replay: Replay) -> list[tuple[str, ...]]:
    now_ms = _now_ms()
    return [
        (
            item.outcome.value,
            item.batch_id or item.message_id or item.subject,
            item.sale_id or "–",
            _age(item.age_s(now_ms)),
            _standings(item.reservations),
            item.why,
        )
        for item in replay.items
    ]


def next_step(replay: Replay) -> str:
    """What to do now, in one or two sentences."""
    if not replay.items:
        return LOOK_FURTHER if replay.more else NAMES[replay.scope.source]
    count = Counter(item.outcome for item in replay.items)
    sentences = list(_of_dry_run(count) if replay.dry_run else _of_act(replay, count))
    if count[Outcome.REFUSED] or count[Outcome.WAITING]:
        sentences.append("The column why says what was refused, and what waits.")
    if replay.more:
        sentences.append("There is more than this: run it again afterwards, or name a sale.")
    return " ".join(sentences)


def _of_dry_run(count: Counter[Outcome]) -> list[str]:
    if count[Outcome.PLANNED] or count[Outcome.NO_OP]:
        return ['Nothing was changed. To do it, run it again with --apply --why "…".']
    return ["Nothing was changed, and there is nothing to do."]


def _of_act(replay: Replay, count: Counter[Outcome]) -> list[str]:
    sentences = []
    if count[Outcome.PLANNED] or replay.finished_at_ms is None:
        sentences.append("It ended midway: run it again, that does no harm.")
    if count[Outcome.PENDING]:
        sentences.append(f"Look again in a minute: dropgate replay --show {replay.id}")
    if sentences:
        return sentences
    idle = all(item.outcome in {Outcome.WAITING, Outcome.REFUSED} for item in replay.items)
    return [f"Nothing was done. Stored as {replay.id}." if idle else f"Done. Stored as {replay.id}."]


def _scope(scope: Scope) -> dict[str, object]:
    return {
        "source": scope.source.value,
        "sale": scope.sale_id,
        "reservation_ids": list(scope.reservation_ids),
        "batch_ids": list(scope.batch_ids),
        "older_than_s": scope.older_than_s,
    }


def _item(item: Item, now_ms: int) -> dict[str, object]:
    return {
        "outcome": item.outcome.value,
        "why": item.why,
        "message_id": item.message_id,
        "batch_id": item.batch_id,
        "sale_id": item.sale_id,
        "age_s": item.age_s(now_ms),
        "reservations": [
            {"id": now.reservation_id, "status": now.standing.value, "reason": now.reason and now.reason.value}
            for now in item.reservations
        ],
    }


def _standings(reservations: Sequence[Now]) -> str:
    """How many stand how: 3 queued, 1 paid."""
    count = Counter(now.standing.value for now in reservations)
    return ", ".join(f"{number} {standing}" for standing, number in sorted(count.items())) or "–"


def _age(seconds: int | None) -> str:
    if seconds is None:
        return "–"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
