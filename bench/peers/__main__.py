"""`python -m bench.peers --name-server HOST:PORT --topic T --threads 64 --seconds 5 --jars DIR` prints a Figure."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, assert_never

import msgspec

from bench.peers.java import Failed, Load, Measured, Missing, Outcome, measure

MOST_THREADS = 1_000
"""Each is a platform thread with a stack."""
MOST_BYTES = 4_000_000
"""RocketMQ's own bound on a message is 4 MiB, and its head counts."""
MOST_S = 600.0

N = TypeVar("N", int, float)


def main() -> int:
    arguments = _arguments()
    load = Load(
        name_server=arguments.name_server,
        topic=arguments.topic,
        threads=arguments.threads,
        seconds=arguments.seconds,
        warm_up_s=arguments.warm_up,
        body_bytes=arguments.bytes,
    )
    return _tell(asyncio.run(measure(load, arguments.jars)))


def _tell(outcome: Outcome) -> int:
    match outcome:
        case Measured(figure=figure):
            print(msgspec.json.encode(figure).decode())
            return 0
        case Missing(reason=reason) | Failed(reason=reason):
            print(f"error: {reason}", file=sys.stderr)
            return 1
        case _:
            assert_never(outcome)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="RocketMQ's own Java client, measured.")
    parser.add_argument("--name-server", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True, help="is there already, of type TRANSACTION")
    parser.add_argument("--jars", required=True, type=Path, metavar="DIR", help="the folder of RocketMQ's jars")
    parser.add_argument("--threads", type=_from(int, 1, MOST_THREADS), default=64)
    parser.add_argument("--bytes", type=_from(int, 1, MOST_BYTES), default=200, help="of a body (%(default)s)")
    parser.add_argument("--warm-up", type=_from(float, 0.0, MOST_S), default=5.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=_from(float, 0.1, MOST_S), default=5.0)
    return parser.parse_args()


def _from(read: Callable[[str], N], least: N, most: N) -> Callable[[str], N]:
    def number(text: str) -> N:
        if not least <= (found := read(text)) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return found

    return number


if __name__ == "__main__":
    sys.exit(main())
