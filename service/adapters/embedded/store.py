"""SQL for topics, messages and the groups' copies. Each function is one step of the caller's transaction."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from service.domain.errors import BrokerRefused
from service.ports.messaging import (
    Dead,
    Delivery,
    Done,
    Outcome,
    OutgoingMessage,
    RetryAfter,
    Topic,
    TopicType,
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Names one delivery of one group's copy: a later delivery of it makes this one worthless."""

    seq: int
    group: str
    attempt: int


def new_message_id() -> str:
    return secrets.token_hex(16)


def type_of(message: OutgoingMessage, *, half: bool = False) -> TopicType:
    """The message's own type, as RocketMQ's proxy derives it. A message of two types is refused."""
    types = [
        type_
        for type_, has in (
            (TopicType.TRANSACTION, half),
            (TopicType.DELAY, message.deliver_at_ms is not None),
            (TopicType.FIFO, message.fifo_group is not None),
        )
        if has
    ]
    if len(types) > 1:
        raise BrokerRefused(message.topic, f"a message cannot be {' and '.join(types)}")
    return types[0] if types else TopicType.NORMAL


def topic_type(connection: Connection, topic: str) -> TopicType:
    row = connection.execute("SELECT type FROM topics WHERE name = ?", (topic,)).fetchone()
    if row is None:
        raise BrokerRefused(topic, "no such topic: `dropgate topics create` makes it")
    return TopicType(row[0])


def require_type(connection: Connection, topic: str, wanted: TopicType) -> None:
    found = topic_type(connection, topic)
    if found is not wanted:
        raise BrokerRefused(topic, f"the topic is of type {found}, not {wanted}")


def max_attempts(connection: Connection, topic: str, group: str) -> int:
    row = connection.execute("SELECT max_attempts FROM groups WHERE topic = ? AND name = ?", (topic, group)).fetchone()
    if row is None:
        raise BrokerRefused(topic, f"it has no group {group}: `dropgate topics create` makes it")
    return int(row[0])


def create_topic(connection: Connection, topic: Topic) -> None:
    connection.execute("INSERT INTO topics (name, type) VALUES (?, ?) ON CONFLICT DO NOTHING", (topic.name, topic.type))
    if topic.group is None:
        return
    known = connection.execute(
        "UPDATE groups SET max_attempts = coalesce(?, max_attempts) WHERE topic = ? AND name = ?",
        (topic.max_attempts if topic.group_is_ours else None, topic.name, topic.group),
    )
    if known.rowcount == 0:
        connection.execute(
            "INSERT INTO groups (topic, name, max_attempts) VALUES (?, ?, ?)",
            (topic.name, topic.group, topic.max_attempts),
        )
        _give_what_is_kept(connection, topic.name, topic.group)


def _give_what_is_kept(connection: Connection, topic: str, group: str) -> None:
    """A new group starts with what the broker still keeps of the topic."""
    connection.execute(
        """INSERT INTO deliveries (seq, topic, consumers, fifo_group, due_at_ms, attempt)
           SELECT m.seq, m.topic, ?, m.fifo_group, iif(
                   m.fifo_group IS NULL OR m.seq = (SELECT min(f.seq) FROM messages f
                                                    WHERE f.topic = m.topic AND f.fifo_group = m.fifo_group),
                   m.deliver_at_ms, NULL), 0
           FROM messages m WHERE m.topic = ?""",
        (group, topic),
    )
    connection.execute("UPDATE messages SET unread = 0 WHERE topic = ? AND unread = 1", (topic,))


def not_as_wanted(connection: Connection, topic: Topic) -> str | None:
    """One sentence with the remedy, or None."""
    row = connection.execute("SELECT type FROM topics WHERE name = ?", (topic.name,)).fetchone()
    if row is None:
        return f"topic {topic.name} is missing: {topic.made_by} makes it"
    if row[0] != topic.type:
        return f"topic {topic.name} is of type {row[0]}, not {topic.type}: use another topic prefix"
    if topic.group is None:
        return None
    limit = connection.execute(
        "SELECT max_attempts FROM groups WHERE topic = ? AND name = ?", (topic.name, topic.group)
    ).fetchone()
    if limit is None:
        return f"topic {topic.name} has no group {topic.group}: {topic.made_by} makes it"
    if topic.group_is_ours and limit[0] != topic.max_attempts:
        return (
            f"group {topic.group} of topic {topic.name} allows {limit[0]} attempts, not {topic.max_attempts}: "
            f"{topic.made_by} sets it"
        )
    return None


def publish(connection: Connection, messages: Iterable[OutgoingMessage], now_ms: int) -> None:
    for message in messages:
        require_type(connection, message.topic, type_of(message))
        insert_message(connection, message, new_message_id(), now_ms, now_ms)


def insert_message(
    connection: Connection, message: OutgoingMessage, message_id: str, born_at_ms: int, now_ms: int
) -> None:
    """Make it visible: a copy for each group of its topic."""
    groups = [
        name for (name,) in connection.execute("SELECT name FROM groups WHERE topic = ?", (message.topic,)).fetchall()
    ]
    deliver_at_ms = now_ms if message.deliver_at_ms is None else max(now_ms, message.deliver_at_ms)
    seq = connection.execute(
        """INSERT INTO messages (message_id, topic, key, body, properties, fifo_group, born_at_ms, deliver_at_ms,
                                 unread) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            message_id,
            message.topic,
            message.key,
            message.body,
            json.dumps(message.properties),
            message.fifo_group,
            born_at_ms,
            deliver_at_ms,
            not groups,
        ),
    ).lastrowid
    for group in groups:
        behind = message.fifo_group is not None and _fifo_head(connection, message.topic, group, message.fifo_group)
        connection.execute(
            """INSERT INTO deliveries (seq, topic, consumers, fifo_group, due_at_ms, attempt)
               VALUES (?, ?, ?, ?, ?, 0)""",
            (seq, message.topic, group, message.fifo_group, None if behind else deliver_at_ms),
        )


def _fifo_head(connection: Connection, topic: str, group: str, fifo_group: str) -> int | None:
    row = connection.execute(
        "SELECT min(seq) FROM deliveries WHERE topic = ? AND consumers = ? AND fifo_group = ?",
        (topic, group, fifo_group),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def next_due_ms(connection: Connection, topic: str, group: str) -> int | None:
    row = connection.execute(
        """SELECT min(due_at_ms) FROM deliveries
           WHERE topic = ? AND consumers = ? AND due_at_ms IS NOT NULL""",
        (topic, group),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def claim(
    connection: Connection, topic: str, group: str, *, now_ms: int, invisible_ms: int, limit: int
) -> Sequence[Delivery]:
    """Take what is due, for the invisible time. What has used up its attempts goes to the dead letters instead."""
    attempts_max = max_attempts(connection, topic, group)
    rows = connection.execute(
        """SELECT d.seq, d.attempt, d.why, m.message_id, m.key, m.body, m.properties, m.born_at_ms
           FROM deliveries d JOIN messages m ON m.seq = d.seq
           WHERE d.topic = ? AND d.consumers = ? AND d.due_at_ms <= ? ORDER BY d.due_at_ms, d.seq LIMIT ?""",
        (topic, group, now_ms, limit),
    ).fetchall()
    claimed: list[Delivery] = []
    for seq, attempt, why, message_id, key, body, properties, born_at_ms in rows:
        if attempt >= attempts_max:
            _bury(connection, Receipt(seq, group, attempt), why or "not settled in its invisible time", now_ms)
            continue
        claimed.append(
            Delivery(
                topic=topic,
                message_id=message_id,
                key=key,
                body=body,
                attempt=attempt + 1,
                born_at_ms=born_at_ms,
                receipt=Receipt(seq, group, attempt + 1),
                properties=json.loads(properties),
            )
        )
    connection.executemany(
        "UPDATE deliveries SET attempt = attempt + 1, due_at_ms = ?, why = NULL WHERE seq = ? AND consumers = ?",
        [(now_ms + invisible_ms, d.receipt.seq, group) for d in claimed if isinstance(d.receipt, Receipt)],
    )
    return claimed


def settle(connection: Connection, receipt: Receipt, outcome: Outcome, now_ms: int) -> bool:
    """False: this delivery is not the last one any more, or the copy is settled already. Nothing was changed then."""
    match outcome:
        case RetryAfter(delay_s=delay_s, why=why):
            return _again(connection, receipt, now_ms + round(delay_s * 1000), why)
        case Dead(why=why):
            return _bury(connection, receipt, why, now_ms)
        case Done():
            return _forget(connection, receipt, now_ms)


def _again(connection: Connection, receipt: Receipt, due_at_ms: int, why: str) -> bool:
    changed = connection.execute(
        "UPDATE deliveries SET due_at_ms = ?, why = ? WHERE seq = ? AND consumers = ? AND attempt = ?",
        (due_at_ms, why, receipt.seq, receipt.group, receipt.attempt),
    )
    return changed.rowcount == 1


def _bury(connection: Connection, receipt: Receipt, why: str, now_ms: int) -> bool:
    connection.execute(
        """INSERT INTO dead_letters (consumers, topic, message_id, key, body, properties, born_at_ms, attempts, why,
                                     dead_at_ms)
           SELECT d.consumers, m.topic, m.message_id, m.key, m.body, m.properties, m.born_at_ms, d.attempt, ?, ?
           FROM deliveries d JOIN messages m ON m.seq = d.seq
           WHERE d.seq = ? AND d.consumers = ? AND d.attempt = ?""",
        (why, now_ms, receipt.seq, receipt.group, receipt.attempt),
    )
    return _forget(connection, receipt, now_ms)


def _forget(connection: Connection, receipt: Receipt, now_ms: int) -> bool:
    """Drop the group's copy, let the next of its FIFO group come, and drop the message after its last copy."""
    gone = connection.execute(
        """DELETE FROM deliveries WHERE seq = ? AND consumers = ? AND attempt = ?
           RETURNING topic, fifo_group""",
        (receipt.seq, receipt.group, receipt.attempt),
    ).fetchone()
    if gone is None:
        return False
    topic, fifo_group = gone
    if fifo_group is not None:
        head = _fifo_head(connection, topic, receipt.group, fifo_group)
        connection.execute(
            """UPDATE deliveries SET due_at_ms = ? WHERE seq = ? AND consumers = ? AND due_at_ms IS NULL""",
            (now_ms, head, receipt.group),
        )
    connection.execute(
        "DELETE FROM messages WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE seq = ?1)", (receipt.seq,)
    )
    return True


def undelivered(connection: Connection, topic: str, group: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM deliveries WHERE topic = ? AND consumers = ?", (topic, group)
    ).fetchone()
    return int(row[0])


def forget_dead_letter(connection: Connection, group: str, message_id: str) -> None:
    """By the id that `look.dead_letters` gave."""
    connection.execute(
        "DELETE FROM dead_letters WHERE id = ? AND consumers = ? AND message_id || '-' || id = ?",
        (message_id.rpartition("-")[2], group, message_id),
    )


def drop_dead_letters(connection: Connection, before_ms: int, limit: int) -> int:
    return connection.execute(
        "DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters WHERE dead_at_ms < ? LIMIT ?)",
        (before_ms, limit),
    ).rowcount


def drop_unread(connection: Connection, born_before_ms: int, limit: int) -> int:
    """Messages that no group came for. Returns how many: `limit` means that there may be more."""
    return connection.execute(
        """DELETE FROM messages WHERE seq IN (
               SELECT seq FROM messages WHERE unread = 1 AND born_at_ms < ? LIMIT ?)""",
        (born_before_ms, limit),
    ).rowcount
