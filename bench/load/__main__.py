"""`python -m bench.load`: a LoadSpec on standard input, a LoadResult on standard output."""

import sys

import msgspec
import uvloop

from bench.load.crowd import Crowd
from bench.load.spec import LoadSpec


async def _main() -> None:
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=LoadSpec)
    result = await Crowd(spec).run()
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")


uvloop.run(_main())
