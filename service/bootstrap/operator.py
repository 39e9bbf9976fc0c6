"""What a command line needs without running a part: use cases over the same stores, migrations, topics, keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from service.adapters.sql import schema
from service.adapters.sql.sale_store import SqlSaleStore
from service.adapters.system_clock import SystemClock
from service.bootstrap.adapters import open_adapters, open_database, open_transport
from service.bootstrap.use_cases import UseCases
from service.core.keys import KeyService, Role
from service.core.ledger import LedgerService
from service.core.replay import ReplayService
from service.core.reservations import ReservationReader
from service.core.sales import SaleService
from service.core.topics import Topics
from service.ports.messaging import Topic, Transport
from service.ports.orders import ApiKey
from service.settings import Settings


@dataclass(frozen=True, kw_only=True)
class OperatorServices:
    sales: SaleService
    ledgers: LedgerService
    keys: KeyService
    reservations: ReservationReader
    replays: ReplayService


@asynccontextmanager
async def operator(settings: Settings) -> AsyncIterator[OperatorServices]:
    """The use cases of a command line, over the same stores. It starts no server: what is away is said."""
    async with open_adapters(settings, start_redis=False) as adapters:
        cases = UseCases(settings, adapters)
        await cases.refresh()
        yield OperatorServices(
            sales=cases.sales,
            ledgers=cases.ledgers,
            keys=cases.keys,
            reservations=cases.reader,
            replays=cases.replays,
        )


async def migrate(settings: Settings) -> str:
    """The revision reached."""
    # Alembic is 11 MB, and every part of Dropgate imports this module: only who migrates loads it.
    from service.adapters.sql import migrate as sql_migrate

    database = open_database(settings)
    try:
        return await sql_migrate.upgrade(database)
    finally:
        await database.close()


async def schema_problem(settings: Settings) -> str | None:
    database = open_database(settings)
    try:
        return await schema.schema_problem(database)
    finally:
        await database.close()


async def create_topics(settings: Settings, *, events_group: str | None = None) -> Sequence[str]:
    """The names of those that were missing, or not as wanted, and are there now."""
    topics = Topics.named(settings.topic_prefix, events_group=events_group).all()
    async with _broker(settings) as transport:
        made = [await _named(transport, topic) for topic in topics if await transport.missing([topic])]
        await transport.create_topics(topics)
    return made


async def _named(transport: Transport, topic: Topic) -> str:
    """What of it was not as wanted: the topic, or its group alone."""
    is_there = not await transport.missing([replace(topic, group=None)])
    return f"group {topic.group}" if is_there else topic.name


async def check_topics(settings: Settings, *, events_group: str | None = None) -> Sequence[str]:
    async with _broker(settings) as transport:
        return await transport.missing(Topics.named(settings.topic_prefix, events_group=events_group).all())


async def create_key(settings: Settings, role: Role) -> tuple[str, str]:
    async with _keys(settings) as keys:
        return await keys.create(role)


async def list_keys(settings: Settings) -> Sequence[ApiKey]:
    async with _keys(settings) as keys:
        return await keys.list()


async def revoke_key(settings: Settings, key_id: str, actor: str) -> None:
    async with _keys(settings) as keys:
        await keys.revoke(key_id, actor)


@asynccontextmanager
async def _keys(settings: Settings) -> AsyncIterator[KeyService]:
    database = open_database(settings)
    try:
        yield KeyService(SqlSaleStore(database), SystemClock())
    finally:
        await database.close()


@asynccontextmanager
async def _broker(settings: Settings) -> AsyncIterator[Transport]:
    transport = open_transport(settings, SystemClock())
    await transport.start()
    try:
        yield transport
    finally:
        await transport.close()
