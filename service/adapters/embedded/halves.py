"""SQL for half messages: stored, ended, asked about, discarded, resumed.

As in RocketMQ the broker keeps no memory of a verdict: a COMMIT always stores the message, also after a ROLLBACK, after
an earlier COMMIT (a second copy), and after the half message was discarded. Consumers must bear it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from service.adapters.embedded import store
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused
from service.ports.messaging import CheckRequest, OutgoingMessage


@dataclass(frozen=True, kw_only=True)
class Half:
    """A half message that the broker has: who ends it needs all of this."""

    message_id: str
    born_at_ms: int
    message: OutgoingMessage
    checks: int = 0

    def request(self) -> CheckRequest:
        return CheckRequest(
            topic=self.message.topic,
            message_id=self.message_id,
            key=self.message.key,
            body=self.message.body,
            check=self.checks,
        )


def put(connection: Connection, half: Half, check_at_ms: int) -> None:
    store.require_type(connection, half.message.topic, store.type_of(half.message, half=True))
    connection.execute(
        """INSERT INTO halves (message_id, topic, key, body, properties, born_at_ms, checks, check_at_ms)
           VALUES (?, ?, ?, ?, ?, ?, 0, ?)""",
        (
            half.message_id,
            half.message.topic,
            half.message.key,
            half.message.body,
            json.dumps(half.message.properties),
            half.born_at_ms,
            check_at_ms,
        ),
    )


def end(connection: Connection, half: Half, verdict: Verdict, now_ms: int) -> None:
    """UNKNOWN changes nothing: it is asked about again."""
    if verdict is Verdict.UNKNOWN:
        return
    connection.execute("DELETE FROM halves WHERE message_id = ?", (half.message_id,))
    if verdict is Verdict.COMMIT:
        store.insert_message(connection, half.message, half.message_id, half.born_at_ms, now_ms)


def check_is_due(connection: Connection, topic: str, now_ms: int) -> bool:
    row = connection.execute(
        "SELECT 1 FROM halves WHERE topic = ? AND check_at_ms <= ? LIMIT 1", (topic, now_ms)
    ).fetchone()
    return row is not None


def claim_checks(
    connection: Connection, topic: str, *, now_ms: int, next_check_ms: int, check_max: int, limit: int
) -> Sequence[Half]:
    """The half messages to ask about now, oldest first; nobody else gets them before `next_check_ms`.

    The counter grows with the question. What has used up its questions is discarded instead.
    """
    rows = connection.execute(
        """SELECT message_id, key, body, properties, born_at_ms, checks FROM halves
           WHERE topic = ? AND check_at_ms <= ? ORDER BY check_at_ms LIMIT ?""",
        (topic, now_ms, limit),
    ).fetchall()
    claimed: list[Half] = []
    for message_id, key, body, properties, born_at_ms, checks in rows:
        if checks >= check_max:
            _discard(connection, message_id, now_ms)
            continue
        message = OutgoingMessage(topic=topic, body=body, key=key, properties=json.loads(properties))
        claimed.append(Half(message_id=message_id, born_at_ms=born_at_ms, message=message, checks=checks + 1))
    connection.executemany(
        "UPDATE halves SET checks = checks + 1, check_at_ms = ? WHERE message_id = ?",
        [(next_check_ms, half.message_id) for half in claimed],
    )
    return claimed


def _discard(connection: Connection, message_id: str, now_ms: int) -> None:
    connection.execute(
        """INSERT OR REPLACE INTO discarded (message_id, topic, key, body, properties, born_at_ms, checks,
                                             discarded_at_ms)
           SELECT message_id, topic, key, body, properties, born_at_ms, checks, ? FROM halves WHERE message_id = ?""",
        (now_ms, message_id),
    )
    connection.execute("DELETE FROM halves WHERE message_id = ?", (message_id,))


def resume(connection: Connection, message_id: str, now_ms: int) -> None:
    """A half message again, with no question counted and due at once. The discarded copy stays, marked."""
    marked = connection.execute(
        "UPDATE discarded SET resumed_at_ms = ? WHERE message_id = ? AND resumed_at_ms IS NULL",
        (now_ms, message_id),
    )
    if marked.rowcount == 0:
        raise BrokerRefused(message_id, "no discarded half message has this id, or it was resumed: list them again")
    connection.execute(
        """INSERT INTO halves (message_id, topic, key, body, properties, born_at_ms, checks, check_at_ms)
           SELECT message_id, topic, key, body, properties, born_at_ms, 0, ? FROM discarded WHERE message_id = ?""",
        (now_ms, message_id),
    )


def forget(connection: Connection, message_id: str) -> None:
    """A discarded half message is dealt with."""
    connection.execute("DELETE FROM discarded WHERE message_id = ? AND resumed_at_ms IS NULL", (message_id,))


def waiting(connection: Connection, topic: str) -> int:
    return int(connection.execute("SELECT count(*) FROM halves WHERE topic = ?", (topic,)).fetchone()[0])


def drop_discarded(connection: Connection, before_ms: int, limit: int) -> int:
    """Resumed or not: RocketMQ's go with the rest of its commit log. Returns how many."""
    return connection.execute(
        """DELETE FROM discarded WHERE message_id IN (
               SELECT message_id FROM discarded WHERE discarded_at_ms < ? LIMIT ?)""",
        (before_ms, limit),
    ).rowcount
