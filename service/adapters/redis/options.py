"""What bounds a call to Redis, and what a connection needs beside the URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RedisOptions:
    """Seconds, each a bound of its own. `connect_timeout_s` is for a whole connection: TCP, TLS, user and database; the
    question to the Sentinels has as long again."""

    timeout_s: float = 1.0
    connect_timeout_s: float = 1.0
    pool_max: int = 32
    pool_wait_s: float = 0.25
    tls: ssl.SSLContext | None = None
    """Where the URL says TLS; None: whatever the system trusts."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)

    @property
    def budget_s(self) -> float:
        """No call takes longer, whatever the servers do."""
        return self.pool_wait_s + 2 * self.connect_timeout_s + self.timeout_s
