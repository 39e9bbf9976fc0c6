-- The embedded broker, one file: what a RocketMQ broker keeps in its commit log, consume queues and system topics.
-- Times are UTC milliseconds of the Clock port.

CREATE TABLE topics (
    name TEXT PRIMARY KEY,
    type TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
    topic        TEXT    NOT NULL REFERENCES topics (name),
    name         TEXT    NOT NULL,
    max_attempts INTEGER NOT NULL,
    PRIMARY KEY (topic, name)
) STRICT, WITHOUT ROWID;

-- Half messages without a verdict. `check_at_ms`: the broker asks no earlier.
CREATE TABLE halves (
    message_id  TEXT    PRIMARY KEY,
    topic       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    properties  TEXT    NOT NULL,
    born_at_ms  INTEGER NOT NULL,
    checks      INTEGER NOT NULL,
    check_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX halves_to_check ON halves (topic, check_at_ms);

-- Like TRANS_CHECK_MAX_TIME_TOPIC: asked about too often, never delivered, kept for a person, for some days.
CREATE TABLE discarded (
    message_id      TEXT    PRIMARY KEY,
    topic           TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    body            BLOB    NOT NULL,
    properties      TEXT    NOT NULL,
    born_at_ms      INTEGER NOT NULL,
    checks          INTEGER NOT NULL,
    discarded_at_ms INTEGER NOT NULL,
    resumed_at_ms   INTEGER
) STRICT, WITHOUT ROWID;

-- Visible messages, until the last group has settled its copy. `message_id` is not unique: a second COMMIT of a half
-- message stores a second copy. AUTOINCREMENT: a `seq` names one message for ever, so no old receipt fits a new one.
-- `unread`: 1 while the topic has no group; such a message waits for one, as long as the settings say.
CREATE TABLE messages (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id    TEXT    NOT NULL,
    topic         TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    body          BLOB    NOT NULL,
    properties    TEXT    NOT NULL,
    fifo_group    TEXT,
    born_at_ms    INTEGER NOT NULL,
    deliver_at_ms INTEGER NOT NULL,
    unread        INTEGER NOT NULL
) STRICT;

CREATE INDEX messages_unread ON messages (born_at_ms) WHERE unread = 1;

-- A group's copy. `due_at_ms`: deliverable from then on (delay, invisible time and retries all end there); NULL: behind
-- another message of its FIFO group. `attempt` counts deliveries, and is the receipt: settling names the attempt it saw.
CREATE TABLE deliveries (
    seq        INTEGER NOT NULL REFERENCES messages (seq),
    topic      TEXT    NOT NULL,
    consumers  TEXT    NOT NULL,
    fifo_group TEXT,
    due_at_ms  INTEGER,
    attempt    INTEGER NOT NULL,
    why        TEXT,
    PRIMARY KEY (seq, consumers)
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_due ON deliveries (topic, consumers, due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX deliveries_fifo ON deliveries (topic, consumers, fifo_group, seq) WHERE fifo_group IS NOT NULL;

-- Like %DLQ%group: kept for a person, for some days.
CREATE TABLE dead_letters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    consumers  TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    properties TEXT    NOT NULL,
    born_at_ms INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    why        TEXT    NOT NULL,
    dead_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX dead_letters_of_group ON dead_letters (consumers, id);
CREATE INDEX dead_letters_by_age ON dead_letters (dead_at_ms);
