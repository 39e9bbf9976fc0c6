"""`python -m bench.strategies NAME --clients N --warm S --seconds S`: what it timed, as one line of JSON.

Where to sell is in DROPGATE_REDIS_URL and DROPGATE_DATABASE_URL; nothing of it stays there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

import msgspec
import uvloop

from bench.closed_loop import Timed
from bench.strategies.measure import at_its_pace
from bench.strategies.registry import STRATEGIES
from bench.strategies.sql import remove_tables
from bench.strategies.strategy import Stores


def main() -> None:
    wanted = _arguments()
    stores = Stores(redis_url=_url("DROPGATE_REDIS_URL"), database_url=_url("DROPGATE_DATABASE_URL"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        timed = runner.run(_measured(wanted, stores))
    print(msgspec.json.encode(timed).decode())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.strategies", description=__doc__)
    parser.add_argument("name", choices=list(STRATEGIES))
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--warm", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    return parser.parse_args()


def _url(variable: str) -> str:
    url = os.environ.get(variable, "")
    if "://" not in url:
        sys.exit(f"{variable} is {url!r}: the strategies need the URL of a server there")
    return url


async def _measured(wanted: argparse.Namespace, stores: Stores) -> Timed:
    strategy = STRATEGIES[wanted.name](stores)
    try:
        return await at_its_pace(strategy, clients=wanted.clients, warm_s=wanted.warm, seconds=wanted.seconds)
    finally:
        await strategy.close()
        await remove_tables(stores.database_url)


if __name__ == "__main__":
    main()
