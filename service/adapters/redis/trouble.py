"""What an error of Redis, or of the way to it, means: a sentence, the remedy, and whether anything can have been done.

StockRefused is for what certainly did not happen: Redis said so, or was never asked. Everything else may have happened.
Redis looks at memory, disk, role and replicas before a script's first write, and not again after it (7.0 and later: the
script runs through), so these codes mean that nothing was written. It looks at permissions before each command of a
script: one that may not call its third has written with its first two.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from redis.exceptions import RedisError, ResponseError

from service.domain.errors import StockRefused, StockUnavailable

URL = "DROPGATE_REDIS_URL"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    why: str
    remedy: str


_USER = Meaning(why="it refuses the user or the password", remedy=f"correct them in {URL}")
_PERMISSION = Meaning(
    why="its user may not do this", remedy="give it the permissions that docs/operations.md lists (ACL SETUSER)"
)
_REPLICA = Meaning(
    why="it is a replica, which takes no writes",
    remedy=f"name the master in {URL}, or the Sentinels, if this does not pass with a failover",
)
_CERTIFICATE = Meaning(
    why="it wants to see a certificate", remedy="set DROPGATE_REDIS_TLS_CERT and DROPGATE_REDIS_TLS_KEY"
)
_BY_CODE = {
    "LOADING": Meaning(why="it is reading its data from disk", remedy="it will answer by itself"),
    "BUSY": Meaning(
        why="it is busy with a script that does not end",
        remedy="SCRIPT KILL ends it; Dropgate's take milliseconds, so look for who else uses this server",
    ),
    "OOM": Meaning(
        why="its memory is full", remedy="raise maxmemory, or remove what is not Dropgate's (its keys begin with dg:)"
    ),
    "MISCONF": Meaning(
        why="it cannot write to its disk, and takes no writes", remedy="look at its log, and at the space on its disk"
    ),
    "NOREPLICAS": Meaning(
        why="too few replicas follow it (min-replicas-to-write)", remedy="bring them back, or lower that setting"
    ),
    "READONLY": _REPLICA,
    "MASTERDOWN": _REPLICA,
    "NOPERM": _PERMISSION,
    "NOAUTH": _USER,
    "WRONGPASS": _USER,
}
_FIRST_WRITE_ONLY = frozenset({"OOM", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS"})
"""From within a script, these come before its first write or not at all."""
_IN_SCRIPT = " on @user_script:"
"""Redis 7 and Valkey end so what they say of a command of a script: `… script: SHA, on @user_script:LINE.`

Whatever its code: a missing permission is ERR in Redis 7.0 and Valkey 9, and NOPERM outside of a script."""
_ROLE_CHANGES = frozenset({"READONLY", "LOADING", "MASTERDOWN"})
_BY_TEXT = {
    "max number of clients reached": Meaning(
        why="it takes no more connections", remedy="raise its maxclients, or lower DROPGATE_REDIS_POOL_MAX"
    ),
    "the user executing the script can't": _PERMISSION,  # Redis 7.0
    "acl failure in script": _PERMISSION,  # Valkey
    "unknown command": Meaning(
        why="it does not know this command", remedy="use Redis 7 or Valkey, with its commands under their own names"
    ),
    "invalid password": _USER,
    "without any password configured": _USER,
    "certificate required": _CERTIFICATE,
    "certificate_required": _CERTIFICATE,
    "wrong version number": Meaning(
        why="it does not speak TLS on this port",
        remedy=f"name its tls-port in {URL}, or write redis in place of rediss",
    ),
}

_LOOK = "look at its server and the network to it"
_CLOSED = ("Connection closed by server", "reset by peer")
_CLOSED_WITHOUT_TLS = f"{_LOOK}, and write rediss in {URL} if this port speaks TLS"
_CLOSED_WITH_TLS = f"{_LOOK}, and set DROPGATE_REDIS_TLS_CERT if it asks for a certificate"
SILENT_TO_TLS = f"{_LOOK}, and write redis in place of rediss if this port speaks no TLS"
"""A plain Redis waits for the end of a line, and TLS does not send one."""


def is_reply(error: RedisError) -> bool:
    """An error that the server said, whatever redis-py makes of it: LOADING is a lost connection to it."""
    return isinstance(error, ResponseError) or error.status_code is not None


def is_change_of_role(error: RedisError) -> bool:
    """The server is not the master any more, or not yet: where it is must be asked again."""
    return _code_of(error) in _ROLE_CHANGES


def refusal(error: RedisError) -> StockUnavailable:
    """Of an error reply."""
    why, remedy = words(error)
    if remedy is None or _may_follow_a_write(error):
        return StockUnavailable("redis", why, remedy)
    return StockRefused("redis", why, remedy)


def in_doubt(error: Exception) -> StockUnavailable:
    """The call was sent, and there is no reply."""
    return StockUnavailable("redis", *words(error))


def not_connected(error: Exception, *, tls: bool) -> StockRefused:
    """Nothing was sent."""
    why, remedy = words(error)
    if remedy is None and any(part in why for part in _CLOSED):
        remedy = _CLOSED_WITH_TLS if tls else _CLOSED_WITHOUT_TLS
    return StockRefused("redis", why, remedy)


def silent(timeout_s: float, *, tls: bool) -> StockRefused:
    """Nothing was sent: there was no first answer."""
    return StockRefused("redis", f"no connection within {timeout_s:g} s", SILENT_TO_TLS if tls else None)


def _may_follow_a_write(error: RedisError) -> bool:
    return _IN_SCRIPT in str(error) and _code_of(error) not in _FIRST_WRITE_ONLY


def words(error: Exception) -> tuple[str, str | None]:
    """Why, and the remedy where one is known."""
    said, meaning = (str(error) or type(error).__name__).rstrip("."), _meaning_of(error)
    return (said, None) if meaning is None else (f"{meaning.why} ({said})", meaning.remedy)


def _meaning_of(error: Exception) -> Meaning | None:
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Meaning(
            why=f"its certificate is not trusted: {cause.verify_message}",
            remedy="name its authority by DROPGATE_REDIS_TLS_CA, and the server as its certificate does",
        )
    if isinstance(error, RedisError) and _code_of(error) in _BY_CODE:
        return _BY_CODE[_code_of(error)]
    text = f"{error} {cause}".lower()
    return next((meaning for part, meaning in _BY_TEXT.items() if part in text), None)


def _code_of(error: RedisError) -> str:
    """The first word of an error reply; of other errors, whatever they begin with."""
    return error.status_code or str(error).partition(" ")[0]
