"""The operator's look: what was discarded or dead-lettered, and how much waits where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from service.ports.messaging import DeadLetter, DiscardedHalf

DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
DEAD_LETTER_PREFIX = "%DLQ%"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """`undelivered` and `dead_letters` by group (a group reads one topic here, or shows the sum)."""

    halves: int
    discarded: int
    messages: int
    undelivered: Mapping[str, int]
    dead_letters: Mapping[str, int]


def discarded(connection: Connection, limit: int) -> Sequence[DiscardedHalf]:
    """Oldest first; one that was resumed is not listed any more."""
    rows = connection.execute(
        """SELECT message_id, topic, key, body, checks, born_at_ms, discarded_at_ms FROM discarded
           WHERE resumed_at_ms IS NULL ORDER BY discarded_at_ms, message_id LIMIT ?""",
        (limit,),
    ).fetchall()
    names = ("message_id", "topic", "key", "body", "checks", "born_at_ms", "discarded_at_ms")
    return [DiscardedHalf(**dict(zip(names, row, strict=True))) for row in rows]


def dead_letters(connection: Connection, group: str, limit: int) -> Sequence[DeadLetter]:
    """Oldest first. Two copies of one message may both be dead: the row's number tells them apart."""
    rows = connection.execute(
        """SELECT consumers, topic, message_id || '-' || id, key, body, attempts, why, born_at_ms, dead_at_ms
           FROM dead_letters WHERE consumers = ? ORDER BY id LIMIT ?""",
        (group, limit),
    ).fetchall()
    names = ("group", "topic", "message_id", "key", "body", "attempts", "why", "born_at_ms", "dead_at_ms")
    return [DeadLetter(**dict(zip(names, row, strict=True))) for row in rows]


def counts(connection: Connection) -> Counts:
    def one(sql: str) -> int:
        return int(connection.execute(sql).fetchone()[0])

    def by_group(sql: str) -> dict[str, int]:
        return dict(connection.execute(sql).fetchall())

    return Counts(
        halves=one("SELECT count(*) FROM halves"),
        discarded=one("SELECT count(*) FROM discarded WHERE resumed_at_ms IS NULL"),
        messages=one("SELECT count(*) FROM messages"),
        undelivered=by_group("SELECT consumers, count(*) FROM deliveries GROUP BY consumers"),
        dead_letters=by_group("SELECT consumers, count(*) FROM dead_letters GROUP BY consumers"),
    )
