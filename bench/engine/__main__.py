"""`python -m bench.engine`: an EngineSpec on standard input, an EngineResult on standard output."""

import sys

import msgspec
import uvloop

from bench.engine.clients import EngineSpec, measure


async def _main() -> None:
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineSpec)
    sys.stdout.buffer.write(msgspec.json.encode(await measure(spec)) + b"\n")


uvloop.run(_main())
