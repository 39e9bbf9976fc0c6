"""`dropgate dev`: one process, ready to be tried; keys are made on the first start."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from service.cli.output import Failure, say

if TYPE_CHECKING:
    from service.bootstrap import Running
    from service.settings import Settings

KEYS = "keys.json"
RUNNING = "running.json"
LOCK = "dev.lock"

READY_WAIT_S = 5.0
"""How long the welcome waits for /readyz; after it, it says what is missing, and everything goes on trying."""
READY_LOOK_S = 0.1
READY_TIMEOUT_S = 3.0
"""Of one look: longer than the server takes to give up on a component."""


class Key(msgspec.Struct, frozen=True):
    """A bearer key for development, with its secret."""

    id: str
    key: str


class DevKeys(msgspec.Struct, frozen=True, kw_only=True):
    """HOME/keys.json: a bearer key for each role that a trial needs, and the secret that signs payments."""

    storefront: Key
    payments: Key
    operator: Key
    payment_secret: str
    participant: Key | None = None
    """None in a file that an older release made: the next start makes one."""


class RunningFile(msgspec.Struct, frozen=True, kw_only=True):
    """HOME/running.json, while `dev` runs: where it answers."""

    url: str
    pid: int


async def run_dev(settings: Settings, stop: asyncio.Event) -> int:
    """Migrate, make topics and keys, run every part until stopped."""
    from service.bootstrap import Part, create_topics, migrate, run

    make_home(settings.home)
    with only_one(settings.home), _announced(settings.home) as announce:
        await migrate(settings)
        await create_topics(settings)
        keys = await development_keys(settings)
        sales = await _count_sales(settings)
        greeting: set[asyncio.Task[None]] = set()

        def started(running: Running) -> None:
            url = running.url or ""
            announce(url)
            greeting.add(asyncio.create_task(greet(settings, keys, url, sales)))

        try:
            return await run(with_secret(settings, keys), frozenset(Part), stop=stop, on_ready=started)
        finally:
            for task in greeting:
                task.cancel()


async def greet(settings: Settings, keys: DevKeys, url: str, sales: int) -> None:
    """Say that it is ready once it is; or, after a bounded wait, what is missing."""
    deadline = time.monotonic() + READY_WAIT_S
    while True:
        missing = await asyncio.to_thread(what_is_missing, url)
        if not missing or time.monotonic() > deadline:
            break
        await asyncio.sleep(READY_LOOK_S)
    say(welcome(settings, keys, url, sales=sales, missing=missing))


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy of the environment is not for a server on this machine."""


def what_is_missing(url: str) -> list[str]:
    """What /readyz says; empty: ready."""
    try:
        with _DIRECT.open(f"{url}/readyz", timeout=READY_TIMEOUT_S):
            return []
    except urllib.error.HTTPError as error:
        with error:
            found: list[str] = json.load(error).get("missing", [])
        return found or [f"/readyz answers {error.code}"]
    except (OSError, ValueError) as error:
        return [f"no answer from {url}/readyz: {error}"]


async def _count_sales(settings: Settings) -> int:
    from service.bootstrap import operator

    async with operator(settings) as services:
        return len(await services.sales.list())


def make_home(home: Path) -> None:
    """The folder with keys in it is its owner's alone."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"The folder {home} cannot be made: {error.strerror}. Choose another by --home.") from None


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the folder: two embedded stacks in one would sell from each other's files."""
    with (home / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                f"Another `dropgate dev` runs in {home}: stop it, or choose another folder by --home."
            ) from None
        yield


async def development_keys(settings: Settings) -> DevKeys:
    """The keys of HOME/keys.json; made on the first start."""
    path = settings.home / KEYS
    try:
        keys = msgspec.json.decode(path.read_bytes(), type=DevKeys)
    except FileNotFoundError:
        keys = await _new_keys(settings)
    except msgspec.MsgspecError as error:
        raise Failure(f"{path} cannot be read ({error}). Move it away; new keys are made then.") from None
    else:
        if keys.participant is not None:
            return keys
        keys = msgspec.structs.replace(keys, participant=await _new_key(settings, "participant"))
    write_private(path, json.dumps(msgspec.to_builtins(keys), indent=2) + "\n")
    return keys


async def _new_keys(settings: Settings) -> DevKeys:
    return DevKeys(
        storefront=await _new_key(settings, "storefront"),
        payments=await _new_key(settings, "payments"),
        operator=await _new_key(settings, "operator"),
        participant=await _new_key(settings, "participant"),
        payment_secret="pay_" + secrets.token_urlsafe(24),
    )


async def _new_key(settings: Settings, role: str) -> Key:
    from service.bootstrap import create_key
    from service.core.keys import Role

    return Key(*await create_key(settings, Role(role)))


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and readable by its owner only."""
    draft = path.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def with_secret(settings: Settings, keys: DevKeys) -> Settings:
    """Payments signed with the development secret are taken, beside those of the settings."""
    from pydantic import SecretStr

    return settings.model_copy(update={"payment_secrets": (*settings.payment_secrets, SecretStr(keys.payment_secret))})


@contextmanager
def _announced(home: Path) -> Iterator[_Announce]:
    announce = _Announce(home / RUNNING)
    try:
        yield announce
    finally:
        announce.path.unlink(missing_ok=True)


class _Announce:
    """Tells other processes of this machine where this one answers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, url: str) -> None:
        write_private(self.path, json.dumps(msgspec.to_builtins(RunningFile(url=url, pid=os.getpid()))) + "\n")


def welcome(settings: Settings, keys: DevKeys, url: str, *, sales: int = 0, missing: Sequence[str] = ()) -> str:
    """What a person who has just started it wants to know."""
    home = settings.home.absolute()
    lines = [f"Dropgate is ready at {url}"]
    if missing:
        lines = [f"Dropgate answers at {url}, but is NOT ready:", *(f"  ✗ {sentence}" for sentence in missing)]
    lines += [f"  data  {home}", f"  keys  {home / KEYS} (storefront, payments, participant, operator, payment_secret)"]
    if sales:
        lines.append(f"It has {sales} {'sale' if sales == 1 else 'sales'}: `dropgate sale show` lists them.")
    else:
        lines += ["A first sale, to paste into another terminal:", *(f"  {line}" for line in first_calls(url, keys))]
    return "\n".join([*lines, "Ctrl-C stops it; nothing is lost."])


def first_calls(url: str, keys: DevKeys) -> tuple[str, ...]:
    """Make a sale, open it, reserve a unit."""
    sale = {"id": "first-drop", "sku": "tee-black-m", "stock": 100, "price": 4900, "currency": "EUR"}
    reserve = f"{url}/v1/sales/first-drop/reservations"
    return (
        _curl(f"{url}/admin/v1/sales", keys.operator, sale | {"limit_per_buyer": 1}),
        _curl(f"{url}/admin/v1/sales/first-drop/open", keys.operator, {"warm": True}),
        _curl(reserve, keys.storefront, {"buyer_id": "buyer-1", "quantity": 1}, "-H 'Idempotency-Key: first-try' "),
    )


def _curl(url: str, key: Key, body: dict[str, object], more: str = "") -> str:
    headers = f"-H 'Authorization: Bearer {key.key}' -H 'Content-Type: application/json' {more}"
    return f"curl -sS {url} {headers}-d '{json.dumps(body)}'"
