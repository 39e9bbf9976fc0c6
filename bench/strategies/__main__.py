"""`python -m bench.strategies NAME --stock N --buyers N --clients N`: one figure, as one line of JSON.

Where to sell is in DROPGATE_REDIS_URL and DROPGATE_DATABASE_URL. `--stock 0` measures refusals.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

import msgspec
import uvloop

from bench.figures import Figure
from bench.strategies.measure import measure
from bench.strategies.registry import STRATEGIES
from bench.strategies.strategy import Stores


def main() -> None:
    wanted = _arguments()
    stores = Stores(redis_url=_url("DROPGATE_REDIS_URL"), database_url=_url("DROPGATE_DATABASE_URL"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figure = runner.run(_measured(wanted, stores))
    print(msgspec.json.encode(figure).decode())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.strategies", description=__doc__)
    parser.add_argument("name", choices=list(STRATEGIES))
    parser.add_argument("--stock", type=int, required=True)
    parser.add_argument("--buyers", type=int, required=True)
    parser.add_argument("--clients", type=int, required=True)
    return parser.parse_args()


def _url(variable: str) -> str:
    url = os.environ.get(variable, "")
    if "://" not in url:
        sys.exit(f"{variable} is {url!r}: the strategies need the URL of a server there")
    return url


async def _measured(wanted: argparse.Namespace, stores: Stores) -> Figure:
    strategy = STRATEGIES[wanted.name](stores)
    try:
        return await measure(strategy, stock=wanted.stock, buyers=wanted.buyers, clients=wanted.clients)
    finally:
        await strategy.close()


if __name__ == "__main__":
    main()
