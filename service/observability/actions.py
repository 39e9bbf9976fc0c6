"""Every action that a log line may name, once, with its meaning. docs/operations.md lists them from here."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """`meaning` is what an operator reads."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Action:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    STARTED = "started", "A part of the process is running."
    STOPPING = "stopping", "A stop was asked for: intake is closed, what is in flight drains."
    STOPPED = "stopped", "The part ended; `drained` says whether everything in flight finished."
    PART_DIED = "part_died", "A background loop ended by itself: the process stops, for its supervisor to restart it."
    NOT_READY = "not_ready", "This process takes no reservation: `missing` says what for, and the remedies."
    READY = "ready", "Nothing is missing any more."
    ADVICE = "advice", "What this process cannot see of a component, and what to see to; it sells. Also in /readyz."
    LOOP_FAILED = "loop_failed", "One turn of a loop failed and will be tried again."
    ITEM_FAILED = (
        "item_failed",
        "One sale or row of a loop failed. The others went on; it is tried again, ever more rarely.",
    )
    TOO_MANY_SALES = (
        "too_many_sales",
        "More sales than processes read: the oldest are neither sold nor tended. Settle what is over.",
    )
    BATCH_DECIDED = "batch_decided", "reserve.lua decided a batch: winners, losers, ids known before."
    BATCH_IN_DOUBT = "batch_in_doubt", "The reserve call or a decision gave no answer: the check-back will resolve it."
    BATCH_REFUSED = (
        "batch_refused",
        "Redis did not take a batch, and said why: it is rolled back, the callers heard 503.",
    )
    BATCH_FENCED = "batch_fenced", "A check-back was answered ROLLBACK before the deduction came: nobody got stock."
    HALF_NOT_SENT = "half_not_sent", "No half receipt: nothing was deducted, the callers heard 503."
    CHECK_ANSWERED = "check_answered", "A check-back was answered with this verdict."
    ORDERS_MADE = "orders_made", "An order transaction committed: accepted and rejected candidates."
    MESSAGE_WAITS = "message_waits", "A batch message cannot be decided now and comes again."
    MESSAGE_WITHOUT_RECORD = (
        "message_without_record",
        "A batch message whose batch holds no stock: acked, no order (F02).",
    )
    BATCH_UNREADABLE = (
        "batch_unreadable",
        "Batches that a newer release stored in Redis: this one leaves them, its newer neighbours end them.",
    )
    MESSAGE_DEAD = "message_dead", "A message went to the dead letters."
    DISCARDED_STAYS = (
        "discarded_stays",
        "A discarded half message cannot be decided now.",
    )
    REPLAYED = (
        "replayed",
        "A replay acted on one item: who, its ids, what became of it. With `error`: SQL went away, and it ended there.",
    )
    WRITE_OFF = "write_off", "Redis had granted units that SQL does not have: they are written off. Look at the ledger."
    ORDER_ENDED = "order_ended", "An order was cancelled, or a reservation ended before its order."
    RELEASED = "released", "Units owed to Redis were given back or written off."
    PAYMENT_STORED = "payment_stored", "A signed payment was stored, and this became of it."
    LOST_REPORTED = (
        "lost_reported",
        "This is not the Redis that was loaded: the sale's gate is shut, the leader rebuilds.",
    )
    LOST_DISMISSED = "lost_dismissed", "A report of loss named a server that is not the sale's: a process is misrouted."
    AUTHORITY_CHANGED = "authority_changed", "Who decides on a sale's stock changed, under this epoch."
    LOAD_FAILED = "load_failed", "Redis could not be loaded; the sale goes back to SQL and another attempt follows."
    LEADER = "leader", "This keeper became or ceased to be the leader."
    SALE_CHANGED = "sale_changed", "An operator changed a sale."
    REQUEST_FAILED = "request_failed", "A request met a bug: 500 with this request id. The error names the place."
