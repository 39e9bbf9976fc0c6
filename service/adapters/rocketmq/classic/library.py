"""rocketmq-client-python and librocketmq under it, imported here only, and only where something is to be sent.

Its functions are used as they are, and not the package's classes over them: those free no message, and where a callback
of theirs raises they raise it on into the native caller, which takes whatever lies in the place of the answer: for a
transaction, as a rule, COMMIT (seen).

SettingRefused: package or library is missing, or the other client has its place.
"""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

from service.adapters.rocketmq import packages
from service.domain.errors import SettingRefused

BUILDS = "github.com/apache/rocketmq-client-cpp, releases"


packages.require(packages.NATIVE, not_with=packages.GRPC)

try:
    from rocketmq.ffi import (
        LOCAL_TRANSACTION_EXECUTE_CALLBACK,
        TRANSACTION_CHECK_CALLBACK,
        _CLogLevel,
        _CSendResult,
        dll,
    )
except (ImportError, OSError, AttributeError, NotImplementedError) as error:
    raise SettingRefused(
        "broker_url",
        f"rocketmq4 needs librocketmq 2.0 or newer, which cannot be loaded ({error}): install its official build "
        f"({BUILDS}) and run `ldconfig`",
    ) from error

COMMIT, ROLLBACK, UNKNOWN = 0, 1, 2
"""What a native caller takes for an answer."""
OK = 0
SIGNING_CHANNEL = b"ALIYUN"
"""Without one the package signs nothing at all."""

__all__ = [
    "COMMIT",
    "NO_LOG",
    "OK",
    "ROLLBACK",
    "SIGNING_CHANNEL",
    "UNKNOWN",
    "CheckBackFunction",
    "LocalTransaction",
    "NativeFailure",
    "SendResult",
    "configure",
    "dll",
    "property_of",
    "require",
    "text",
    "why",
]

NO_LOG = _CLogLevel.FATAL
"""It logs into a file under the user's home: then no file is made. Our own lines say what follows."""

SendResult = _CSendResult
LocalTransaction = LOCAL_TRANSACTION_EXECUTE_CALLBACK
CheckBackFunction = TRANSACTION_CHECK_CALLBACK


def _leave_shortly() -> None:
    """The process ends once Python has, without the library's own ending: that one waits for ever where a connection is
    still open (seen), as when a broker that is deaf was not taken leave of. The C library runs first what it was told
    last, so it is told at Python's end. Where it has no `on_exit`, the library's own ending it is."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


atexit.register(_leave_shortly)


def text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def why() -> str:
    """The last error, in the library's words: its first sentence. A send that got no answer says "No route"."""
    said = text(dll.GetLatestErrorMessage()).replace("msg: ", "")
    return said.partition(",error:")[0] or "it does not say why"


def require(status: int, what: str) -> None:
    """NativeFailure: it said no."""
    if status != OK:
        raise NativeFailure(f"{what}: {why()} ({status})")


class NativeFailure(Exception):
    """librocketmq did not do it."""


def configure(client: int, *, name_servers: str, instance: str, credentials: tuple[str, str] | None) -> None:
    """A producer's handle that has not started. One instance is one set of connections."""
    require(dll.SetProducerLogLevel(client, NO_LOG), "log level")
    require(dll.SetProducerNameServerAddress(client, name_servers.encode()), "name servers")
    require(dll.SetProducerInstanceName(client, instance.encode()), "instance")
    if credentials is not None:
        access_key, secret_key = (it.encode() for it in credentials)
        require(dll.SetProducerSessionCredentials(client, access_key, secret_key, SIGNING_CHANNEL), "credentials")


def property_of(message: Any, name: str) -> str:
    return text(dll.GetMessageProperty(message, name.encode()))
