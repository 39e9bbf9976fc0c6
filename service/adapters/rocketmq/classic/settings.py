"""Every bound of the native transport, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from service.adapters.rocketmq.admin.settings import AdminSettings


@dataclass(frozen=True, kw_only=True)
class ClassicSettings(AdminSettings):
    """`name_servers` is where the client package itself learns its brokers from."""

    call_timeout_s: float = 3.0
    """A send, from the call to its receipt. The callers of a reservation wait 8 s in all."""

    start_timeout_s: float = 8.0
    """A client that has not started by then is abandoned. As a rule it takes 0.1 s."""

    sends_max: int = 32
    """Threads of one process that send, half messages and others alike: a send blocks its thread until the transaction
    ends. As many batches are in flight at most; more wait for a thread within their own deadline."""

    check_deadline_s: float = 0.8
    """A check-back without an answer by then is UNKNOWN: the broker asks again. The package asks on one thread, one
    question after the other, so each that hangs holds up all others for so long."""

    close_timeout_s: float = 2.5
    """Each of the three steps of `close`: consumers, what is under way, clients. Together less than the 10 s that a
    process has to stop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in self.name_servers.split(";"):
            _require_address(address)
        if self.sends_max < 1:
            raise ValueError("sends_max must be at least 1")


def _require_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not host or not colon or ":" in host or not (port.isascii() and port.isdecimal()):
        raise ValueError(
            f"{address!r} is no name server's address: rocketmq4://host:port;host:port, by name or IPv4 address"
        )
