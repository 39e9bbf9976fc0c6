"""What a person reads of `python -m tests.servers up`: progress on standard error, the rest on standard output."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.servers.process import ServerProcess
from tests.servers.rocketmq import BrokerOptions
from tests.servers.stack import Place, Stack, Telling


class Progress(Telling):
    """A line for each server that is ready; at a terminal, a last line that counts while others are not."""

    def __init__(self, names: Collection[str]) -> None:
        self._began = time.monotonic()
        self._counting = sys.stderr.isatty()
        slow = " (a broker takes 15 s, on a busy machine a minute)" if "rocketmq" in names else ""
        self._write(f"==> starting {', '.join(names)}{slow}\n")

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def ready(self, name: str, after_s: float) -> None:
        self._write(f"    {name} is ready after {after_s:.1f} s\n")

    def waiting(self, names: Collection[str]) -> None:
        if self._counting:
            self._write(f"    {', '.join(names)}: {self.seconds():.0f} s" if names else "")

    def _write(self, text: str) -> None:
        print(f"\r\033[K{text}" if self._counting else text, end="", file=sys.stderr, flush=True)


class Ended:
    """Says once of each process that it has ended, by a hand or by itself."""

    def __init__(self, processes: Sequence[ServerProcess]) -> None:
        self._running = list(processes)

    def look(self) -> None:
        for process in [it for it in self._running if not it.running]:
            self._running.remove(process)
            stays = "the others run on. It stays away until you start all of them anew"
            print(f"{process.name} has ended, {stays}. Its last words: {process.log}", file=sys.stderr)


def page(stack: Stack, after_s: float, file: Path) -> str:
    parts = [
        f"Up after {after_s:.1f} s.\n",
        _table(stack.places()),
        f"In another terminal, `. {file}` sets:\n",
        exports(stack.settings()),
        *([] if stack.rocketmq is None else [_check_backs(stack.rocketmq.options)]),
        "Their data is beside their logs. Ctrl-C stops them all; the data and the file above are gone then.",
    ]
    return "\n".join(parts)


def exports(settings: Mapping[str, str]) -> str:
    """As a shell reads them."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())


def as_json(stack: Stack) -> str:
    places = [asdict(place) | {"log": str(place.log)} for place in stack.places()]
    return json.dumps({"settings": stack.settings(), "servers": places})


def _table(places: Sequence[Place]) -> str:
    rows = [("server", "version", "address", "log")]
    rows += [(it.server, it.version, it.address, str(it.log)) for it in places]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(["", *map(str.ljust, row, widths)]).rstrip() + "\n" for row in rows)


def _check_backs(options: BrokerOptions) -> str:
    first_s, then_s = options.transaction_timeout_ms / 1000, options.transaction_check_interval_ms / 1000
    times = options.transaction_check_max
    return (
        f"The broker asks about a half message after {first_s:g} s, then every {then_s:g} s, {times} times at most.\n"
    )
