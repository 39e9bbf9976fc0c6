"""Every bound of the gRPC transport, with its reason."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from service.adapters.rocketmq.admin.settings import AdminSettings
from service.adapters.rocketmq.questions import QuestionBounds


@dataclass(frozen=True, kw_only=True)
class GrpcSettings(AdminSettings, QuestionBounds):
    proxy: str
    """host:port of the proxy's gRPC side; several, for the same cluster, with `;` between."""

    tls: bool = False
    """To the proxy."""

    start_timeout_s: float = 8.0
    """A client that is not connected, known and registered by then is abandoned: the package itself would wait for
    ever. Three calls of `call_timeout_s` fit, as a rule they take 0.1 s."""

    call_timeout_s: float = 3.0
    """One call to the proxy; a half message with all its attempts. The callers of a reservation wait 8 s in all."""

    attempts: int = 3
    """Of a send, on another broker where there are several. A half message that is stored twice is harmless: record
    and fence go by the batch's id, and the check-back ends the copy that nobody ends."""

    attempt_pause_s: float = 0.1
    """Before the second attempt; double before the third: a connection that was reset is there again by then."""

    sends_in_flight_max: int = 16
    """Messages of one `publish` that are sent side by side."""

    probe_every_s: float = 2.0
    """How often each client is asked for a sign of life on the stream on which check-backs travel."""

    probe_timeout_s: float = 3.0
    """Silence this long is one failed probe."""

    deaf_after_s: float = 5.0
    """Without a sign of life for this long the client is replaced."""

    reconnect_every_s: float = 1.0
    """Between two attempts to replace a client."""

    poll_s: float = 5.0
    """One long poll. The proxy allows no shorter one, and takes up to 20 s."""

    poll_pause_s: float = 0.5
    """After a poll that failed."""

    stale_margin_s: float = 2.0
    """What was fetched and not handed out until this long before its invisible time ends is dropped: it comes again."""

    def __post_init__(self) -> None:
        """ValueError says what a person has to change."""
        AdminSettings.__post_init__(self)
        QuestionBounds.__post_init__(self)
        _require_addresses(self.proxy)
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")


def _require_addresses(proxy: str) -> None:
    """The client package cuts an address at its colons, and takes several only where they are numbers."""
    addresses = proxy.split(";")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not host or not colon or ":" in host or not (port.isascii() and port.isdecimal()):
            raise ValueError(f"{address!r} is no proxy's address: rocketmq5://host:port, by name or IPv4 address")
    if len(addresses) > 1 and not all(map(_is_ipv4, addresses)):
        raise ValueError("several proxies are given by their IPv4 addresses; one name may stand for several")


def _is_ipv4(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address.rpartition(":")[0])
    except ValueError:
        return False
    return True
