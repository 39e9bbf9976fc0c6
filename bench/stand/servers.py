"""The servers that everything is measured on, as processes, found by where they listen: Redis, the database, RocketMQ.

The bench is given addresses only. One on another machine, in a container or of another user cannot be watched: it is
left out, and why is said.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import psutil
from sqlalchemy.engine import make_url

from service.adapters.redis import url as redis_url
from service.adapters.rocketmq.admin.operator import Operator
from service.adapters.rocketmq.admin.settings import AdminSettings
from service.domain.errors import DropgateError
from service.settings import Settings

NAMED_S = 5.0
"""To resolve a host's name: it answers at once, or the name is no use for a bench."""
ANYWHERE = frozenset({"0.0.0.0", "::"})
FORWARDERS = frozenset({"docker-proxy", "rootlessport", "ssh", "kubectl", "socat"})
"""Programs that listen for a server elsewhere: what they use is not what it uses."""
MYSQL_PORT = 3306
FAMILY = "RocketMQ "


class Server(StrEnum):
    """In the order in which one process is named that is several of them."""

    REDIS = "Redis"
    DATABASE = "database"
    NAME_SERVER = f"{FAMILY}name server"
    BROKER = f"{FAMILY}broker"
    PROXY = f"{FAMILY}proxy"


@dataclass(frozen=True, kw_only=True)
class Place:
    server: Server
    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """`why` goes on after "is not watched: "."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} is not watched: {self.why}."


@dataclass(frozen=True, kw_only=True)
class Servers:
    """`processes` by the names that tables show."""

    processes: Mapping[str, psutil.Process]
    left_out: Sequence[LeftOut]


async def servers_of(settings: Settings, broker_urls: Sequence[str]) -> Servers:
    """`broker_urls`: the settings' own, and that of the other transport."""
    brokers = await _brokers(settings, _name_servers(settings, broker_urls))
    asked = dict.fromkeys((*_given(settings, broker_urls), *brokers))
    found = await watchable([it for it in asked if isinstance(it, Place)])
    missing = [it for it in asked if isinstance(it, LeftOut)]
    return Servers(processes=found.processes, left_out=(*missing, *found.left_out))


async def watchable(places: Iterable[Place]) -> Servers:
    """Of these. A process that is several servers is watched once, by all of their names."""
    listening, own = _listening(), _own_addresses()
    roles: dict[int, set[Server]] = {}
    left_out: list[LeftOut] = []
    for place in places:
        found = await _process_at(place, listening, own)
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            roles.setdefault(found, set()).add(place.server)
    return Servers(processes=dict(_named(roles)), left_out=left_out)


def _named(roles: Mapping[int, set[Server]]) -> Iterator[tuple[str, psutil.Process]]:
    """A second one of the same kind has a number."""
    seen: dict[str, int] = {}
    for pid, servers in roles.items():
        first, *others = [it for it in Server if it in servers]
        name = " and ".join([first, *(it.removeprefix(FAMILY) for it in others)])
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} {seen[name]}", psutil.Process(pid)


# --- addresses --------------------------------------------------------------------------------------------------------


def _given(settings: Settings, broker_urls: Sequence[str]) -> Iterator[Place | LeftOut]:
    match redis_url.parse(settings.redis_url).place:
        case redis_url.Server(host=host, port=port):
            yield Place(server=Server.REDIS, host=host, port=port)
        case redis_url.UnixSocket() | redis_url.Watched() as other:
            yield LeftOut(what=Server.REDIS, why=f"{type(other).__name__} names no port of its process")
    database = make_url(settings.database_url)
    yield Place(server=Server.DATABASE, host=database.host or "localhost", port=database.port or MYSQL_PORT)
    yield from _places(Server.NAME_SERVER, _name_servers(settings, broker_urls))
    for url in broker_urls:
        yield from _places(Server.PROXY, _rest(url, "rocketmq5"))


def _name_servers(settings: Settings, broker_urls: Sequence[str]) -> str:
    """`host:port;host:port`. "" where nobody says it."""
    return settings.rocketmq_nameserver or next(filter(None, (_rest(url, "rocketmq4") for url in broker_urls)), "")


def _rest(url: str, scheme: str) -> str:
    own, _, rest = url.partition("://")
    return rest.rstrip("/") if own == scheme else ""


def _places(server: Server, addresses: str) -> Iterator[Place | LeftOut]:
    for address in filter(None, (it.strip() for it in addresses.split(";"))):
        host, _, port = address.rpartition(":")
        if host and port.isdecimal():
            yield Place(server=server, host=host.strip("[]"), port=int(port))
        else:
            yield LeftOut(what=server, why=f"{address} is no host:port")


async def _brokers(settings: Settings, name_servers: str) -> Sequence[Place | LeftOut]:
    """Only the name servers know where they are."""
    if not name_servers:
        return [LeftOut(what=Server.BROKER, why="no name server is set that knows where it is")]
    secret = settings.rocketmq_secret_key
    at = AdminSettings(
        name_servers=name_servers,
        access_key=settings.rocketmq_access_key or "",
        secret_key=secret.get_secret_value() if secret else "",
        admin_tls=settings.rocketmq_admin_tls,
        tls_ca=settings.rocketmq_tls_ca,
    )
    operator = Operator(at, setting="rocketmq_nameserver")
    try:
        masters = await operator.cluster.name_servers.masters()
    except DropgateError as error:
        return [LeftOut(what=Server.BROKER, why=f"the name server does not say where it is ({error})")]
    finally:
        await operator.client.close()
    return [place for address in masters for place in _places(Server.BROKER, address)]


# --- processes --------------------------------------------------------------------------------------------------------


async def _process_at(place: Place, listening: Mapping[int, Mapping[str, int]], own: frozenset[str]) -> int | LeftOut:
    what = f"{place.server} at {place.host}:{place.port}"
    try:
        here = await _addresses(place.host) & own
    except (OSError, UnicodeError, TimeoutError) as error:
        return LeftOut(what=what, why=f"its host cannot be resolved ({error})")
    if not here:
        return LeftOut(what=what, why="it is on another machine")
    at_port = listening.get(place.port, {})
    pid = next((at_port[address] for address in (*sorted(here), *sorted(ANYWHERE)) if address in at_port), None)
    if pid is None:
        return LeftOut(what=what, why="its process is in a container or another user's, and cannot be seen")
    try:
        program = psutil.Process(pid).name()
    except psutil.Error as error:
        return LeftOut(what=what, why=f"its process cannot be looked at ({error})")
    return LeftOut(what=what, why=f"{program} listens there for it") if program in FORWARDERS else pid


async def _addresses(host: str) -> frozenset[str]:
    async with asyncio.timeout(NAMED_S):
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(_plain(str(it[4][0])) for it in found)


def _own_addresses() -> frozenset[str]:
    """Of this machine; a broker registers by one that others reach it at."""
    return frozenset(
        _plain(it.address)
        for addresses in psutil.net_if_addrs().values()
        for it in addresses
        if it.family in (socket.AF_INET, socket.AF_INET6)
    )


def _listening() -> Mapping[int, Mapping[str, int]]:
    """By port and address, the process that listens there. Nothing where this user may not look."""
    found: dict[int, dict[str, int]] = {}
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return {}
    for it in connections:
        if it.status == psutil.CONN_LISTEN and it.pid is not None and it.laddr:
            at_port = found.setdefault(it.laddr.port, {})
            address = _plain(it.laddr.ip)
            # Children inherit a socket: the oldest is the server.
            at_port[address] = min(it.pid, at_port.get(address, it.pid))
    return found


def _plain(address: str) -> str:
    """Without its interface; an IPv4 address that IPv6 wraps, by itself."""
    read = ipaddress.ip_address(address)
    mapped = read.ipv4_mapped if isinstance(read, ipaddress.IPv6Address) else None
    return str(mapped or read).partition("%")[0]
