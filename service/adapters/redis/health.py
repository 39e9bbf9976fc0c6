"""What of a server would lose stock, or refuse to sell it: each in one sentence with the remedy.

What this user may not see is no reason to sell nothing: it is an advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from service.adapters.redis import info, replies
from service.adapters.redis.client import RedisClient
from service.adapters.redis.scripts import Scripts
from service.domain.errors import StockRefused
from service.domain.ids import SaleId
from service.domain.stock import Slot

_EVICTION = (
    "Redis evicts keys when memory is full (maxmemory-policy {policy}), and stock with them: "
    "set maxmemory-policy noeviction"
)
_NO_PERSISTENCE = (
    "Redis keeps nothing on disk, so that each restart costs a rebuild: set appendonly yes and appendfsync everysec"
)
_UNSEEN = (
    "Redis has no append-only file, and CONFIG is not allowed here to see whether it saves snapshots: "
    "allow CONFIG GET, or look for yourself"
)
_POLICY_UNSEEN = "INFO does not say whether Redis evicts keys: see that maxmemory-policy is noeviction"
_REPLICA = "Redis is a replica, which takes no writes: name the master in DROPGATE_REDIS_URL, or its Sentinels"
_FULL = (
    "Redis is full ({used} of {most} bytes) and takes no writes: "
    "raise maxmemory, or remove what is not Dropgate's (its keys begin with dg:)"
)
_DISK = "Redis cannot write to its disk, and takes no writes: look at its log, and at the space on its disk"
_DENIED = "Redis does not allow {commands} on keys dg:* to this user: give it the permissions of docs/operations.md"

NOBODYS = Slot(sale_id=SaleId("readyz"), segment=0, epoch=0)
"""A slot that no sale has: what is asked about it writes nothing."""
_BARE = frozenset({"UNLINK"})
"""Called without a script."""


async def problems_of(client: RedisClient, scripts: Scripts) -> list[str]:
    """From INFO, and from CONFIG GET where INFO does not say it. StockUnavailable if the server does not answer."""
    found = info.parsed(await client.execute("INFO"))
    return [
        *_of_info(found),
        *await _of_disk(client, found),
        *await _of_persistence(client, found),
        *await _of_permissions(client, scripts),
    ]


async def advice_of(client: RedisClient) -> list[str]:
    """What cannot be seen here. StockUnavailable if the server does not answer."""
    found = info.parsed(await client.execute("INFO"))
    policy_unseen = "maxmemory_policy" not in found
    snapshots_unseen = found.get("aof_enabled") != "1" and await _config(client, "save") is None
    return [*[_POLICY_UNSEEN] * policy_unseen, *[_UNSEEN] * snapshots_unseen]


def _of_info(found: Mapping[str, str]) -> Iterator[str]:
    if found.get("role") == "slave":
        yield _REPLICA
    policy = found.get("maxmemory_policy")
    if policy not in {None, "noeviction"}:
        yield _EVICTION.format(policy=policy)
    used = int(found.get("used_memory", 0)) - int(found.get("mem_not_counted_for_evict", 0))
    most = int(found.get("maxmemory", 0))
    if 0 < most <= used:
        yield _FULL.format(used=used, most=most)


async def _of_disk(client: RedisClient, found: Mapping[str, str]) -> list[str]:
    """A snapshot that failed stops writes only where snapshots are asked for, and are to stop them."""
    if found.get("aof_last_write_status", "ok") != "ok":
        return [_DISK]
    if found.get("rdb_last_bgsave_status", "ok") == "ok":
        return []
    stops = await _config(client, "stop-writes-on-bgsave-error") == "yes"
    return [_DISK] if stops and await _config(client, "save") else []


async def _of_persistence(client: RedisClient, found: Mapping[str, str]) -> list[str]:
    if found.get("aof_enabled") == "1":
        return []
    return [_NO_PERSISTENCE] if await _config(client, "save") == "" else []


async def _config(client: RedisClient, name: str) -> str | None:
    """None: this user may not ask, or CONFIG has no such name here."""
    try:
        reply = await client.execute("CONFIG GET", name)
    except StockRefused:
        return None
    return replies.text(reply[1]) if isinstance(reply, list) and len(reply) > 1 else None


async def _of_permissions(client: RedisClient, scripts: Scripts) -> list[str]:
    _, *denied = await scripts.may.run(client, NOBODYS, replies.pack(sorted(scripts.commands() | _BARE)))
    return [_DENIED.format(commands=", ".join(map(replies.text, denied)))] if denied else []
