"""Where the brokers are, what is ours there, and every bound of asking them, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

NAMESPACE_END = "%"


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    name_servers: str
    """host:port;host:port: topics, groups, lag and discarded half messages are asked of the brokers themselves."""

    prefix: str = "dropgate"
    """Of our topics: the discarded half messages of all of a cluster lie in one topic, and others' are not ours."""
    order_topic: str | None = None
    """The one that takes half messages. None: every topic with the prefix may."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    namespace: str = ""
    admin_tls: bool = False
    """To name servers and brokers."""

    tls_ca: Path | None = None
    """Who signed their certificates. None: whom this machine trusts."""

    queues: int = 8
    """Of a topic that `create_topics` makes, on each broker. A FIFO topic is worked on in as many groups at once."""

    admin_timeout_s: float = 1.5
    """One admin request: the broker answers in milliseconds, and `/readyz` waits 2 s."""

    aside_scan_max: int = 2_000
    """Messages looked through in one listing of discarded half messages, ours or not, or of a group's dead letters: 63
    pulls, as a rule."""

    scan_pulls_max: int = 64
    """Pulls to see which half messages have ended. One holds some thousands of ends; what is beyond counts as open."""

    half_scan_max: int = 256
    """So many half messages are looked at, to tell ours from others': 8 pulls. Above it they are only counted."""

    def __post_init__(self) -> None:
        """ValueError says what a person has to change."""
        if self.queues < 1:
            raise ValueError("queues must be at least 1")

    def full(self, name: str) -> str:
        """A topic's or group's name at the broker, which keeps the namespace in it."""
        return f"{self.namespace}{NAMESPACE_END}{name}" if self.namespace else name

    def short(self, name: str) -> str:
        return name.removeprefix(f"{self.namespace}{NAMESPACE_END}") if self.namespace else name

    def sends_halves_to(self, topic: str) -> bool:
        """Whether half messages of this topic, as the broker names it, are ours. Another deployment's prefix may begin
        with ours."""
        if self.order_topic is not None:
            return topic == self.full(self.order_topic)
        return topic.startswith(self.full(f"{self.prefix}-"))
