"""Every bound of the embedded broker, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EmbeddedSettings:
    transaction_timeout_s: float = 6.0
    """A half message is asked about no earlier: `transactionTimeOut` of RocketMQ 4.3.1 and later."""

    check_interval_s: float = 30.0
    """Between two questions about one half message: `transactionCheckInterval` from RocketMQ 5.1.1."""

    check_max: int = 15
    """Questions before a half message is discarded: `transactionCheckMax`."""

    check_deadline_s: float = 5.0
    """A check-back without an answer by then counts as UNKNOWN. Below the interval: one half message is never asked
    about twice at once."""

    checks_in_flight_max: int = 32
    """Questions open at once in a process: enough that a few slow ones do not hold up the others, few enough that the
    stores behind the answers are not flooded after an outage."""

    poll_s: float = 0.05
    """How soon a process sees what another one stored: SQLite cannot wake it. A look is one PRAGMA, about 20 µs; what
    is stored by the same process wakes its waiters at once."""

    check_poll_s: float = 0.1
    """How often a process looks whether a half message is to be asked about: small against the 6 s of the time-out."""

    busy_s: float = 5.0
    """How long a write waits for the other processes' writes before it is BrokerUnavailable: far above any transaction
    here (milliseconds), below what a caller would wait."""

    busy_retry_s: float = 0.001
    """Between two tries for the write lock, with jitter. SQLite's own handler backs off to 100 ms: it starves."""

    group_max: int = 256
    """Calls that share one transaction and its fsync (about 3 ms on a disk): the more wait, the more share. The bound
    keeps one turn on the event loop at some 10 ms."""

    wal_bytes_max: int = 64 * 1024 * 1024
    """The write-ahead log shrinks back to this after a burst: without a bound it keeps its largest size for ever."""

    keep_s: float = 72 * 3600.0
    """How long what nobody takes is there: a message of a topic without any group, a dead letter, a discarded half
    message. RocketMQ's `fileReservedTime`: who gets used to more would lose them there."""

    retention_every_s: float = 60.0
    """How often what is past its time is deleted: rare, it is only space."""

    retention_chunk: int = 1000
    """Rows deleted in one transaction: a few milliseconds of everybody's write lock."""

    def __post_init__(self) -> None:
        if not 0 < self.check_deadline_s <= self.check_interval_s:
            raise ValueError("check_deadline_s must be above 0 and at most check_interval_s")
        if self.check_max < 1 or self.checks_in_flight_max < 1 or self.group_max < 1:
            raise ValueError("check_max, checks_in_flight_max and group_max must be at least 1")
