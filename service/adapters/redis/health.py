"""What of a server's settings would lose stock, each in one sentence with the remedy."""

from __future__ import annotations

from service.adapters.redis.client import RedisClient
from service.domain.errors import StockUnavailable

_EVICTION = (
    "Redis evicts keys when memory is full (maxmemory-policy {policy}), and stock with them: "
    "set maxmemory-policy noeviction"
)
_NO_PERSISTENCE = (
    "Redis keeps nothing on disk, so that each restart costs a rebuild: set appendonly yes and appendfsync everysec"
)
_UNSEEN = (
    "Redis has no append-only file, and CONFIG is not allowed here to see whether it saves snapshots: allow CONFIG GET"
)


async def problems_of(client: RedisClient) -> list[str]:
    """From CONFIG GET, or from INFO where that is forbidden. StockUnavailable if the server does not answer at all."""
    await client.execute("PING")
    try:
        policy, aof, save = [await _config(client, name) for name in ("maxmemory-policy", "appendonly", "save")]
    except StockUnavailable:
        return await _problems_of_info(client)
    found = [] if policy == "noeviction" else [_EVICTION.format(policy=policy)]
    return found if aof == "yes" or save else [*found, _NO_PERSISTENCE]


async def _config(client: RedisClient, name: str) -> str:
    reply = await client.execute("CONFIG GET", name)
    if not isinstance(reply, dict):
        raise StockUnavailable("redis", "CONFIG GET is not readable")
    values = {_text(key): _text(value) for key, value in reply.items()}
    return values.get(name, "")


async def _problems_of_info(client: RedisClient) -> list[str]:
    info = await client.execute("INFO", "memory", "persistence")
    if not isinstance(info, dict):
        raise StockUnavailable("redis", "INFO is not readable")
    policy = str(info.get("maxmemory_policy", "unknown"))
    found = [] if policy == "noeviction" else [_EVICTION.format(policy=policy)]
    return found if info.get("aof_enabled") else [*found, _UNSEEN]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
