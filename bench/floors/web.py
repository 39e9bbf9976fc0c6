"""The HTTP floors: Starlette as one would write it, with the product's own authentication and validation, and behind
them nothing (echo) or one EVALSHA that takes a unit. `python -m bench.floors.web echo|evalsha`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import redis.asyncio
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench.floors.take import TAKE
from service.adapters.system_clock import SystemClock
from service.api.bodies import ReserveBody
from service.api.decoding import decoder
from service.api.server import HttpServer
from service.core.keys import KeyService
from service.ports.orders import ApiKey

KEYS = ("bench:floor", "bench:floor:taken")
"""Of Redis; they leave with the process."""


class OneKey:
    """In place of the table of keys."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key

    async def keys(self) -> list[ApiKey]:
        return [self._key]


class Floor:
    def __init__(self, keys: KeyService, client: redis.asyncio.Redis | None, sha: str) -> None:
        self._keys = keys
        self._client = client
        self._sha = sha
        self._decode = decoder(ReserveBody)

    async def reserve(self, request: Request) -> Response:
        secret = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._keys.authenticate(secret) is None:
            return JSONResponse({"code": "unauthenticated"}, status_code=401)
        body = self._decode(dict(request.headers.raw), await request.body())
        key = request.headers.get("idempotency-key", "")
        left = await self._take(key, body.quantity)
        if left < 0:
            return JSONResponse({"code": "sold_out"}, status_code=409)
        return JSONResponse({"id": key, "buyer_id": body.buyer_id, "quantity": body.quantity, "left": left}, 202)

    async def _take(self, key: str, quantity: int) -> int:
        if self._client is None:
            return 0
        return int(await self._client.evalsha(self._sha, 2, *KEYS, quantity, key))


async def _main(kind: str) -> None:
    stored = ApiKey(
        id=os.environ["FLOOR_KEY_ID"], hash=os.environ["FLOOR_KEY_HASH"], role="storefront", created_at_ms=0
    )
    keys = KeyService(OneKey(stored), SystemClock())  # type: ignore[arg-type] # only its keys are asked for
    await keys.refresh()
    client, sha = None, ""
    if kind == "evalsha":
        url, connections = os.environ["DROPGATE_REDIS_URL"], int(os.environ["FLOOR_POOL"])
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=connections)
        client = redis.asyncio.Redis(connection_pool=pool)
        sha = await client.script_load(TAKE)
        await asyncio.gather(*(client.ping() for _ in range(connections)))  # all are there before the first request
        await client.delete(*KEYS)
        await client.hset(KEYS[0], "available", os.environ.get("FLOOR_STOCK", "1000000000"))
    floor = Floor(keys, client, sha)
    app = Starlette(routes=[Route("/v1/sales/floor/reservations", floor.reserve, methods=["POST"])])
    server = HttpServer(app, "127.0.0.1", 0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    print(server.url, flush=True)
    await server.serve()
    if client is not None:
        await client.unlink(*KEYS)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
