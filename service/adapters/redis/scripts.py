"""The Lua scripts: read once, includes resolved, called by their hash. Their header names the keys, in order."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from redis.exceptions import NoScriptError

from service.adapters.redis.client import RedisClient
from service.adapters.redis.keys import keys
from service.domain.stock import Slot
from service.resources import lua_folder

NAMES = ("peek", "reserve", "resolve", "batches", "confirm", "end", "adjust", "count", "load", "may")

_INCLUDE = re.compile(r"^--#include (\w+\.lua)$", re.MULTILINE)
_KEYS = re.compile(r"^-- KEYS: (.+)$", re.MULTILINE)
_CALL = re.compile(r"\bredis\.call\('(\w+)'")

Argument = str | bytes | int
Reply = list[object]


@dataclass(frozen=True, kw_only=True)
class Script:
    """`key_names` are the parts after the epoch, as the script's header lists them."""

    name: str
    source: str
    key_names: tuple[str, ...]
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest())

    async def run(self, client: RedisClient, slot: Slot, *arguments: Argument) -> Reply:
        """Call it once. NOSCRIPT means that it did not run: the one error after which a call is sent again."""
        call = [str(len(self.key_names)), *keys(slot, self.key_names), str(slot.epoch), *arguments]
        try:
            reply = await client.execute("EVALSHA", self.sha, *call)
        except NoScriptError:
            reply = await client.execute("EVAL", self.source, *call)
        if not isinstance(reply, list):
            raise TypeError(f"{self.name}.lua replied {reply!r}, which is not a list")
        return reply


def load_script(name: str, folder: Path) -> Script:
    text = (folder / f"{name}.lua").read_text(encoding="utf-8")
    header = _KEYS.search(text)
    if header is None:
        raise ValueError(f"{name}.lua has no header line `-- KEYS: ...`")
    return Script(
        name=name,
        source=_INCLUDE.sub(lambda found: (folder / "include" / found[1]).read_text(encoding="utf-8"), text),
        key_names=tuple(part.strip() for part in header[1].split(",")),
    )


@dataclass(frozen=True, kw_only=True)
class Scripts:
    """All of scripts/lua."""

    peek: Script
    reserve: Script
    resolve: Script
    batches: Script
    confirm: Script
    end: Script
    adjust: Script
    count: Script
    load: Script
    may: Script

    def commands(self) -> frozenset[str]:
        """All that they call."""
        scripts = (getattr(self, name) for name in NAMES)
        return frozenset(name for script in scripts for name in _CALL.findall(script.source))


def load_scripts(folder: Path | None = None) -> Scripts:
    where = folder or lua_folder()
    return Scripts(**{name: load_script(name, where) for name in NAMES})
