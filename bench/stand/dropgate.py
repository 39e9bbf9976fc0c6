"""Dropgate as its processes on given servers, by its own command line: what an operator would start and call."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stand.child import BenchFailed, Child, child, said

COMMAND_S = 120.0
AUDITED = frozenset({0, 1})
READY = {
    "api": "The API is ready",
    "order": "Orders are being made",
    "timeout": "Unpaid orders are being timed out",
    "events": "Events are being sent",
    "keeper": "The keeper is running",
}
_COMMANDS = {
    "api": ("serve", "--port", "0"),
    "order": ("consume", "order"),
    "timeout": ("consume", "timeout"),
    "events": ("consume", "events"),
    "keeper": ("keeper",),
}
_URL = re.compile(r"http://[\d.]+:\d+")


@dataclass(frozen=True, kw_only=True)
class Address:
    host: str
    port: int

    @classmethod
    def of(cls, line: str) -> Address:
        found = _URL.search(line)
        if found is None:
            raise BenchFailed(f"no address in {line!r}")
        host, _, port = found[0].removeprefix("http://").partition(":")
        return cls(host=host, port=int(port))


@dataclass(frozen=True, kw_only=True)
class Stand:
    """`name` says which transport; `python` has that transport's client; `environment` is all that its processes
    see."""

    name: str
    python: str
    environment: Mapping[str, str]
    folder: Path

    async def prepare(self) -> str:
        """The schema, the topics, and a storefront's key: its secret."""
        await self.command("migrate")
        await self.command("topics", "create")
        return str((await self.asked("key", "create", "--role", "storefront"))["key"])

    async def command(self, *arguments: str, timeout_s: float = COMMAND_S, codes: Collection[int] = (0,)) -> str:
        name, command = f"{self.name} {' '.join(arguments[:2])}", self._service(*arguments)
        return await said(name, command, self.environment, self.folder, timeout_s=timeout_s, codes=codes)

    async def asked(self, *arguments: str, timeout_s: float = COMMAND_S) -> dict[str, Any]:
        """A command with --json, and what it said; also where it ends with 1, as an audit that finds a fault."""
        answer: dict[str, Any] = json.loads(
            await self.command(*arguments, "--json", timeout_s=timeout_s, codes=AUDITED)
        )
        return answer

    @asynccontextmanager
    async def part(self, part: str, **more: str) -> AsyncIterator[tuple[Child, str]]:
        """Running and ready, and the line that says so."""
        environment = {**self.environment, **more}
        async with child(f"{self.name} {part}", self._service(*_COMMANDS[part]), environment, self.folder) as it:
            yield it, await it.line_with(READY[part])

    def module(self, name: str, *arguments: str) -> list[str]:
        return [self.python, "-m", name, *arguments]

    def _service(self, *arguments: str) -> list[str]:
        return self.module("service", *arguments)
