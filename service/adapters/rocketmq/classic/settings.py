"""Every bound of the native transport's sending side, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.questions import QuestionBounds


@dataclass(frozen=True, kw_only=True)
class ClassicSettings(AdminSettings, QuestionBounds):
    """`name_servers` is where the client package itself learns its brokers from."""

    payment_window_s: int | None = None
    """A delay level of this length must be there. None: of any."""

    call_timeout_s: float = 3.0
    """A send, from the call to its receipt. The callers of a reservation wait 8 s in all."""

    attempt_timeout_s: float = 1.0
    """One attempt of a send. The package makes up to three by itself (seen), so that all of them fit into a call."""

    attempts: int = 3
    """Of ours, of a send that failed at once. A half message that is stored twice is harmless: record and fence go by
    the batch's id, and the check-back ends the copy that nobody ends."""

    attempt_pause_s: float = 0.1
    """Before the second attempt; double before the third: by then a connection that others were making is there."""

    decide_timeout_s: float = 15.0
    """A thread that has sent a half message waits so long for its verdict, longer than a reservation may take. After it
    the broker hears UNKNOWN, and what was decided is the answer to its question."""

    halves_max: int = 32
    """Threads that send half messages: each is taken until its transaction has ended. So many are under way at most;
    more wait for a thread within their own deadline."""

    sends_max: int = 8
    """Threads that send other messages, some hundred microseconds each."""

    body_bytes_max: int = 4 * 1024 * 1024
    """The broker's own bound (`maxMessageSize`). The package's is 128 KiB."""

    start_timeout_s: float = 8.0
    """A client that has not started, or is not registered, by then is abandoned. As a rule it takes 0.1 s."""

    look_every_s: float = 2.0
    """How often the brokers are asked whether they know this process as one to ask."""

    beat_every_s: float = 20.0
    """The package's own heartbeat comes every 30 s. Where nothing was sent for this long there is one more, so that a
    connection that is dead without saying so is found, and made anew."""

    heartbeat_timeout_s: float = 3.0
    """The package's own: it is not to be set."""

    deaf_after_s: float = 8.0
    """Without a sign of life for this long `away` says so."""

    replace_after_s: float = 15.0
    """A broker that is there and does not know this process for so long, heartbeats or not, gets another client."""

    levels_believed_s: float = 30.0
    """A broker reads its delay levels at its start only."""

    def __post_init__(self) -> None:
        """ValueError says what a person has to change."""
        AdminSettings.__post_init__(self)
        QuestionBounds.__post_init__(self)
        for address in self.name_servers.split(";"):
            _require_address(address)
        if min(self.attempts, self.halves_max, self.sends_max) < 1:
            raise ValueError("attempts, halves_max and sends_max must be at least 1")


def _require_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not host or not colon or ":" in host or not (port.isascii() and port.isdecimal()):
        raise ValueError(
            f"{address!r} is no name server's address: rocketmq4://host:port;host:port, by name or IPv4 address"
        )
