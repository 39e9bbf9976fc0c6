"""Where Redis is, and as whom it is spoken to: DROPGATE_REDIS_URL, read once.

    redis://[user:password@]host[:6379][/db]
    unix://[user:password@]/path/to/socket[?db=N]
    redis+sentinel://[user:password@]host[:26379][,host[:26379]...]/SERVICE[/db]

`rediss` in place of `redis` speaks TLS, to the Sentinels as well. User and password are Redis's; what the Sentinels
want to hear is a setting of its own. redis-py's parser is not used: its options in a URL win over our bounds, and a
database that is no number is 0 to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

SERVER_PORT = 6379
SENTINEL_PORT = 26379

_FORMS = "redis://host:port/db, unix:///path, or redis+sentinel://host:port,host:port/SERVICE/db; rediss for TLS"
_SETTINGS = {
    "socket_timeout": "redis_timeout_s",
    "socket_connect_timeout": "redis_connect_timeout_s",
    "max_connections": "redis_pool_max",
    "ssl_ca_certs": "redis_tls_ca",
    "ssl_certfile": "redis_tls_cert",
    "ssl_keyfile": "redis_tls_key",
    "ssl_cert_reqs": "redis_tls_verify",
    "ssl_check_hostname": "redis_tls_verify",
    "sentinel_username": "redis_sentinel_username",
    "sentinel_password": "redis_sentinel_password",
}
"""What other clients take in the URL, and the setting that says it here."""


class UrlRefused(ValueError):
    """Why it cannot be used. Without what may be secret in it."""


@dataclass(frozen=True, kw_only=True)
class Server:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class UnixSocket:
    path: str


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The master of this service, whichever server the Sentinels name."""

    service: str
    sentinels: tuple[Server, ...]


@dataclass(frozen=True, kw_only=True)
class RedisUrl:
    place: Server | UnixSocket | Watched
    tls: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def parse(url: str) -> RedisUrl:
    """UrlRefused: it is none, or has an option that is a setting here."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    userinfo, _, hosts = authority.rpartition("@")
    place, path_db = _place(scheme.lower(), hosts, unquote(path))
    username, password = _user(userinfo)
    return RedisUrl(
        place=place,
        tls=scheme.lower().startswith("rediss"),
        db=_db(_options(query).get("db", path_db)),
        username=username,
        password=password,
    )


def _place(scheme: str, hosts: str, path: str) -> tuple[Server | UnixSocket | Watched, str]:
    """And the database that the path names."""
    match scheme:
        case "redis" | "rediss":
            return _server(hosts or "localhost", SERVER_PORT), path
        case "unix":
            return UnixSocket(path=f"/{path}"), ""
        case "redis+sentinel" | "rediss+sentinel":
            service, _, db = path.partition("/")
            if not service:
                raise UrlRefused(f"{scheme}:// needs the service that the Sentinels watch: …/mymaster")
            sentinels = tuple(_server(host, SENTINEL_PORT) for host in hosts.split(","))
            return Watched(service=service, sentinels=sentinels), db
        case _:
            raise UrlRefused(f"it must be one of {_FORMS}")


def _server(text: str, default_port: int) -> Server:
    if "," in text:
        raise UrlRefused("several hosts are Sentinels': redis+sentinel://host:port,host:port/SERVICE")
    host, bracket, port = text.rpartition("]") if text.startswith("[") else text.partition(":")
    host, port = host.strip("[]"), port.removeprefix(":")
    if not host or (bracket == ":" and not port):
        raise UrlRefused(f"{text!r} is no host:port")
    if port and not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UrlRefused(f"{port!r} is no port")
    return Server(host=unquote(host), port=int(port or default_port))


def _user(text: str) -> tuple[str | None, str | None]:
    name, _, password = text.partition(":")
    if name and not password:
        raise UrlRefused("it names a user and no password: user:password@, or :password@ for the default user")
    return unquote(name) or None, unquote(password) or None


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name in _SETTINGS:
            raise UrlRefused(f"{name} is no option of it: set DROPGATE_{_SETTINGS[name].upper()}")
        if name != "db":
            raise UrlRefused(f"it has no option {name}")
    return options


def _db(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise UrlRefused(f"{text!r} is no database: a number from 0 on")
    return int(text)
