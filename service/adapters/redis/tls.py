"""TLS to Redis and to its Sentinels: certificate and name are verified, unless a setting says otherwise."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """`ca`: whom to trust, else the system's authorities. `cert` and `key`: who we are, where the server asks for it.
    Not `verify`: encrypted, but to whoever answers."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """OSError (ssl.SSLError among them) where a file cannot be used."""
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert is not None:
        context.load_cert_chain(files.cert, files.key)
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
