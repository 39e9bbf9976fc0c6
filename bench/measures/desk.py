"""What every measurement shares: where things are, how long it takes, and the generator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.load.spec import LoadResult, LoadSpec
from bench.stand.child import said
from bench.stand.dropgate import Address

LIMITED_AT = 0.9
"""A generator that used so much of its one core may have measured itself: its figure says so."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """`environment` is what processes of the bench see; a stand has its own. `engine`: the database, to look at."""

    environment: Mapping[str, str]
    engine: AsyncEngine
    folder: Path
    warm_s: float
    seconds: float

    async def crowd(self, spec: LoadSpec) -> LoadResult:
        output = await said(
            "load generator",
            [sys.executable, "-m", "bench.load"],
            self.environment,
            self.folder,
            stdin=msgspec.json.encode(spec),
            timeout_s=spec.warm_s + spec.seconds + 660,
        )
        return msgspec.json.decode(output, type=LoadResult)

    def spec(self, address: Address, path: str, bearer: str, clients: int) -> LoadSpec:
        return LoadSpec(
            host=address.host,
            port=address.port,
            path=path,
            bearer=bearer,
            clients=clients,
            warm_s=self.warm_s,
            seconds=self.seconds,
        )


def note_of(result: LoadResult, *more: str) -> str:
    """Whether the generator was the limit, and what else is to be said."""
    busy = result.cpu_s / result.seconds
    limited = f"the load generator used {busy:.2f} of its core: it may be the limit" if busy > LIMITED_AT else ""
    return "; ".join(part for part in (limited, *more) if part)
