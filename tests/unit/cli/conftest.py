"""A bootstrap that opens nothing: the commands are tested for what they print and how they end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.domain.errors import Conflict, NotFound, OutcomeUnknown
from service.domain.ids import SaleId
from service.domain.ledger import Ledger, SqlTerms
from service.domain.sale import Authority, Sale, SaleRules, SaleStatus
from service.domain.stock import SlotCount
from service.ports.orders import ApiKey
from service.settings import Settings
from tests.unit.cli.replays import FakeReplays

KEYS = ("create_key", "list_keys", "revoke_key")


class FakePart(StrEnum):
    API = "api"
    ORDER = "order"
    TIMEOUT = "timeout"
    EVENTS = "events"
    KEEPER = "keeper"


@dataclass
class FakeRunning:
    url: str | None
    parts: frozenset[FakePart]


def a_sale(id_: str, rules: SaleRules) -> Sale:
    return Sale(
        id=SaleId(id_),
        rules=rules,
        status=SaleStatus.DRAFT,
        authority=Authority.SQL,
        epoch=1,
        epoch_started_at_ms=0,
        initial=rules.stock,
        adjusted=0,
        available=rules.stock,
        wants_redis=False,
        sold_in_epoch=False,
        older_deadline_ms=None,
        lost=None,
        lost_at_ms=None,
        created_at_ms=1_767_225_600_000,
    )


class FakeSales:
    """Sales in a dict; `acts` has what was asked for, and by whom. Without `keeper` nothing is loaded."""

    def __init__(self) -> None:
        self.found: dict[str, Sale] = {}
        self.keeper = True
        self.in_doubt = False
        self.acts: list[tuple[str, str, str]] = []

    async def create(self, sale_id: str, rules: SaleRules, actor: str) -> Sale:
        if sale_id in self.found:
            raise Conflict("sale_exists", sale_id=SaleId(sale_id))
        self.found[sale_id] = a_sale(sale_id, rules)
        return await self._did("create", sale_id, actor, SaleStatus.DRAFT)

    async def get(self, sale_id: str) -> Sale:
        if sale_id not in self.found:
            raise NotFound("sale", sale_id)
        return self.found[sale_id]

    async def list(self) -> Sequence[Sale]:
        return list(self.found.values())

    async def warm(self, sale_id: str, actor: str) -> Sale:
        return await self._did("warm", sale_id, actor, SaleStatus.READY)

    async def open(self, sale_id: str, *, warm: bool, actor: str) -> Sale:
        return await self._did("open+warm" if warm else "open", sale_id, actor, SaleStatus.OPEN)

    async def close(self, sale_id: str, actor: str) -> Sale:
        return await self._did("close", sale_id, actor, SaleStatus.CLOSED)

    async def settle(self, sale_id: str, actor: str) -> Sale:
        return await self._did("settle", sale_id, actor, SaleStatus.SETTLED)

    async def adjust(self, sale_id: str, adjustment_id: str, delta: int, actor: str) -> Sale:
        if self.in_doubt:
            raise OutcomeUnknown
        sale = await self.get(sale_id)
        self.found[sale_id] = replace(sale, adjusted=sale.adjusted + delta, available=sale.available + delta)
        return await self._did(f"adjust {delta} {adjustment_id}", sale_id, actor, sale.status)

    async def _did(self, act: str, sale_id: str, actor: str, status: SaleStatus) -> Sale:
        if not self.keeper:
            await asyncio.sleep(0.05)
        warm = self.keeper and status in {SaleStatus.READY, SaleStatus.OPEN}
        loaded: dict[str, Any] = {"wants_redis": True, "authority": Authority.REDIS} if warm else {}
        sale = replace(await self.get(sale_id), status=status, **loaded)
        self.found[sale_id] = sale
        self.acts.append((act, sale_id, actor))
        return sale


def a_ledger(sale_id: str = "drop", *, sql: dict[str, int] | None = None, slot: dict[str, int] | None = None) -> Ledger:
    """100 units: 60 paid, 10 awaiting payment, 30 left; in balance unless told otherwise."""
    terms = dict.fromkeys(SqlTerms.__dataclass_fields__, 0) | {
        "initial": 100,
        "available": 30,
        "awaiting_payment": 10,
        "paid": 60,
        "moved": 30,
        "buyers_units": 70,
        "payments_succeeded": 61,
        "payments_applied": 60,
        "refunds": 1,
    }
    count = dict.fromkeys(SlotCount.__dataclass_fields__, 0) | {
        "granted": 100,
        "available": 30,
        "held": 70,
        "ordered": 70,
        "buyers_units": 70,
    }
    return Ledger(
        sale_id=SaleId(sale_id),
        authority="redis",
        epoch=2,
        sql=SqlTerms(**(terms | (sql or {}))),
        slots={0: SlotCount(**(count | (slot or {})))},
    )


class FakeLedgers:
    """Answers with `looks`, one after the other; the last one for ever."""

    def __init__(self) -> None:
        self.looks: list[list[Ledger]] = [[a_ledger()]]

    async def all(self) -> Sequence[Ledger]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    async def ledger(self, sale_id: str) -> Ledger:
        for ledger in await self.all():
            if ledger.sale_id == sale_id:
                return ledger
        raise NotFound("sale", sale_id)


@dataclass
class FakeBootstrap:
    """What a test sets, and what the commands did."""

    sales: FakeSales = field(default_factory=FakeSales)
    ledgers: FakeLedgers = field(default_factory=FakeLedgers)
    replays: FakeReplays = field(default_factory=FakeReplays)
    problem: str | None = None
    made_topics: list[str] = field(default_factory=list)
    missing_topics: list[str] = field(default_factory=list)
    events_groups: list[str | None] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    ran: list[tuple[Settings, frozenset[FakePart]]] = field(default_factory=list)
    exit_code: int = 0
    not_ready: list[str] = field(default_factory=list)
    while_running: Callable[[], None] | None = None

    @asynccontextmanager
    async def operator(self, settings: Settings) -> AsyncIterator[FakeBootstrap]:
        self.calls.append("operator")
        yield self

    async def schema_problem(self, settings: Settings) -> str | None:
        return self.problem

    async def migrate(self, settings: Settings) -> str:
        self.calls.append("migrate")
        return "0001"

    async def create_topics(self, settings: Settings, *, events_group: str | None = None) -> Sequence[str]:
        self.calls.append("create_topics")
        self.events_groups.append(events_group)
        return self.made_topics

    async def check_topics(self, settings: Settings, *, events_group: str | None = None) -> Sequence[str]:
        self.events_groups.append(events_group)
        return self.missing_topics

    async def create_key(self, settings: Settings, role: str) -> tuple[str, str]:
        self.keys.append(str(role))
        return f"key-{len(self.keys)}", f"dg_{role}_secret"

    async def list_keys(self, settings: Settings) -> Sequence[ApiKey]:
        return [ApiKey(id=f"key-{n}", hash="h", role=role, created_at_ms=0) for n, role in enumerate(self.keys, 1)]

    async def revoke_key(self, settings: Settings, key_id: str, actor: str) -> None:
        if key_id not in {key.id for key in await self.list_keys(settings)}:
            raise NotFound("key", key_id)
        self.calls.append(f"revoke {key_id} by {actor}")

    async def run(
        self,
        settings: Settings,
        parts: frozenset[FakePart],
        *,
        stop: asyncio.Event,
        on_ready: Callable[[FakeRunning], None] | None = None,
    ) -> int:
        self.ran.append((settings, parts))
        if on_ready:
            on_ready(FakeRunning(url="http://127.0.0.1:8080", parts=parts))
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others, timeout=5)
        if self.while_running:
            self.while_running()
            await asyncio.wait_for(stop.wait(), 5)
        return self.exit_code


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> FakeBootstrap:
    fake = FakeBootstrap()
    module: Any = ModuleType("service.bootstrap")
    for name in ("operator", "schema_problem", "migrate", "create_topics", "check_topics", *KEYS, "run"):
        setattr(module, name, getattr(fake, name))
    module.Part = FakePart
    monkeypatch.setitem(sys.modules, "service.bootstrap", module)
    monkeypatch.setattr("service.bootstrap", module, raising=False)
    return fake


@pytest.fixture
def dropgate(bootstrap: FakeBootstrap, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command line in a folder whose .dropgate has a database: commands make none."""
    from service.cli import dev
    from service.cli.main import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dev, "what_is_missing", lambda _url: bootstrap.not_ready)
    (tmp_path / ".dropgate").mkdir()
    (tmp_path / ".dropgate/dropgate.db").touch()
    runner = CliRunner()

    def invoke(*args: str, columns: str = "160") -> Result:
        return runner.invoke(app, list(args), prog_name="dropgate", env={"COLUMNS": columns, "TERM": "dumb"})

    return invoke
