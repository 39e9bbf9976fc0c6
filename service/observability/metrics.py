"""Every metric, declared once with its meaning; docs/operations.md lists them from here. Labels are bounded: no ids
of buyers."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

REQUESTS = Counter("dropgate_reserve_answers_total", "Answers to reserve requests, by code", ["sale", "code"])
RESERVE_SECONDS = Histogram("dropgate_reserve_seconds", "From a reserve request to its answer", buckets=_SECONDS)
BATCH_SIZE = Histogram("dropgate_batch_candidates", "Candidates a half message", buckets=_SIZES)
QUEUE_LENGTH = Gauge("dropgate_queue_length", "Requests that wait for a batch", ["sale"])
IN_FLIGHT = Gauge("dropgate_batches_in_flight", "Batches between half message and verdict in this process")
BATCHES = Counter(
    "dropgate_batches_total", "Batches by what became of them: commit, rollback, unknown, not_sent", ["end"]
)
CHECKS = Counter("dropgate_check_backs_total", "Check-backs by verdict, and errors behind an unknown", ["verdict"])
ORDERS = Counter("dropgate_orders_total", "Rows made by the order transaction, by status", ["sale", "status"])
WRITE_OFFS = Counter(
    "dropgate_write_offs_total", "Reservations written off: Redis had granted what SQL has not. Alarm", ["sale"]
)
MESSAGES_WITHOUT_RECORD = Counter(
    "dropgate_messages_without_record_total", "Batch messages acked without an order: fenced, ended or unknown batches"
)
UNREADABLE_BATCHES = Counter(
    "dropgate_unreadable_batches_total",
    "Looks at a batch that a newer release stored: the old release leaves it. Alarm if it grows for minutes",
)
DISCARDED = Gauge("dropgate_discarded_halves", "Half messages whose checks are used up. Alarm above 0")
DISCARDED_ENDED = Counter("dropgate_discarded_ended_total", "Discarded half messages that the keeper brought to an end")
DEAD = Counter("dropgate_dead_letters_total", "Messages our code sent to the dead letters. Alarm", ["group"])
REPLAYS = Counter("dropgate_replays_total", "Replays that acted, by source; a dry run is none", ["source"])
REPLAY_ITEMS = Counter(
    "dropgate_replay_items_total", "Items that a replay acted on, by what became of them", ["source", "outcome"]
)
CONSUMERS_REPLACED = Counter(
    "dropgate_rocketmq4_consumers_replaced_total",
    "Native consumers that died, fell silent, were unknown to a broker or left a queue unread. "
    "Alarm if it grows for minutes",
    ["group"],
)
MESSAGES = Counter("dropgate_messages_total", "Messages settled by a consumer group, by outcome", ["group", "outcome"])
ENDED = Counter("dropgate_ended_total", "Reservations ended, by reason", ["sale", "reason"])
PAYMENTS = Counter("dropgate_payments_total", "Stored payments by what became of them", ["outcome"])
LOSSES = Counter(
    "dropgate_redis_losses_total", "Times that the leader found a sale's Redis lost, or away for long. Alarm", ["sale"]
)
LOSS_REPORTS = Counter("dropgate_redis_loss_reports_total", "Reports by this process of a lost Redis", ["sale"])
MISROUTED = Counter(
    "dropgate_misrouted_reports_total", "Reports of loss from a process that speaks to another server. Alarm"
)
EPOCH = Gauge("dropgate_sale_epoch", "Epoch of the sale's authority, as this process sees it", ["sale"])
LEADER = Gauge("dropgate_leader", "1 while this process holds the lease", ["lease"])
LOOP_SUCCESS = Gauge(
    "dropgate_loop_last_success_timestamp_seconds",
    "When a background loop last succeeded; until it has, when it began",
    ["loop"],
)
LOOP_SECONDS = Histogram(
    "dropgate_loop_seconds",
    "Duration of one turn of a background loop; of a consumer: one receive, and the wait for room",
    ["loop"],
    buckets=_SECONDS,
)
CONSUME_SECONDS = Histogram(
    "dropgate_consume_seconds",
    "From a consumer's receive of some messages to their acknowledgements, the transaction between them; of none that "
    "failed",
    ["loop"],
    buckets=_SECONDS,
)
LOOP_FAILURES = Counter("dropgate_loop_failures_total", "Turns of a background loop that failed", ["loop"])
LOOP_ITEM_FAILURES = Counter(
    "dropgate_loop_item_failures_total",
    "Sales or rows that failed in a background loop while the others went on. Alarm if it grows for minutes",
    ["loop"],
)
REDIS_IN_USE = Gauge("dropgate_redis_connections_in_use", "Connections to Redis in use: each carries one call")
SALES = Gauge("dropgate_sales", "Sales that are not settled, as this process sees them. Alarm above 1000")
UNLINKS_OWED = Gauge("dropgate_unlinks_owed", "Ended epochs whose keys in Redis are due to be unlinked, 100 or more")
EVENTS_SENT = Counter("dropgate_events_sent_total", "Outbox events given to the broker")
OUTBOX_AGE_SECONDS = Gauge("dropgate_outbox_age_seconds", "Age of the oldest unsent event at the last look")
IN_DOUBT_AGE_SECONDS = Gauge(
    "dropgate_in_doubt_age_seconds", "Age of the oldest decided batch without orders", ["sale"]
)
SQL_RETRIES = Counter(
    "dropgate_sql_retries_total",
    "Transactions rolled back and run again, by why: deadlock, lock_wait, changed, busy (SQLite), duplicate",
    ["why"],
)
SQL_IN_USE = Gauge("dropgate_sql_connections_in_use", "Connections to SQL in use, by lane: work, read, view", ["lane"])
