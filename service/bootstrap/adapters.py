"""Settings to adapters: what talks to a server or a file."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import ArgumentError

from service.adapters.embedded.settings import EmbeddedSettings
from service.adapters.embedded.transport import FILE_NAME, EmbeddedTransport
from service.adapters.redis import tls as redis_tls
from service.adapters.redis.client import RedisClient, RedisOptions
from service.adapters.redis.server import EmbeddedRedis, url_of
from service.adapters.redis.stock import RedisStock
from service.adapters.redis.url import UrlRefused
from service.adapters.sql.database import Database, DatabaseOptions
from service.adapters.sql.mysql_tls import TlsFiles, context_of
from service.adapters.sql.order_store import SqlOrderStore
from service.adapters.sql.retention import SqlRetention
from service.adapters.sql.sale_store import SqlSaleStore
from service.adapters.system_clock import SystemClock
from service.bootstrap.private_files import private_file, private_folder
from service.core.topics import Topics
from service.domain.errors import SettingRefused
from service.ports.clock import Clock
from service.ports.messaging import Transport
from service.ports.orders import OrderStore, SaleStore
from service.ports.retention import Retention
from service.ports.stock import Stock
from service.settings import Settings

EMBEDDED = "embedded"


@dataclass(frozen=True, kw_only=True)
class Adapters:
    clock: Clock
    database: Database
    orders: OrderStore
    sales: SaleStore
    stock: Stock
    transport: Transport
    retention: Retention
    background: Sequence[asyncio.Task[None]] = ()
    """Tasks that work as long as the adapters are open. One that ends earlier is a fault: the process must stop."""


@asynccontextmanager
async def open_adapters(settings: Settings, *, start_redis: bool) -> AsyncIterator[Adapters]:
    """Everything that talks to a server or a file, opened and, in reverse order, closed."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        database = open_database(settings)
        stack.push_async_callback(database.close)
        redis_url, tending = await _redis(settings, stack, start=start_redis)
        stock = RedisStock(_redis_client(redis_url, settings), clock)
        stack.push_async_callback(stock.close)
        transport = open_transport(settings, clock)
        await transport.start()
        stack.push_async_callback(transport.close)
        yield Adapters(
            clock=clock,
            database=database,
            orders=SqlOrderStore(database),
            sales=SqlSaleStore(database),
            stock=stock,
            transport=transport,
            retention=SqlRetention(database),
            background=(*tending, *transport.background()),
        )


def open_database(settings: Settings) -> Database:
    url = settings.database_url
    if url == EMBEDDED:
        url = f"sqlite+aiosqlite:///{private_folder(settings.home) / 'dropgate.db'}"
    options = DatabaseOptions(
        timeout_s=settings.sql_timeout_s,
        transaction_timeout_s=settings.sql_transaction_timeout_s,
        connect_timeout_s=settings.sql_connect_timeout_s,
        pool_max=settings.sql_pool_max,
        tls=_database_tls(settings) if settings.database_tls else None,
    )
    try:
        database = Database(url, options)
    except (ValueError, ArgumentError) as error:
        raise SettingRefused("database_url", str(error)) from None
    if database.is_sqlite:
        private_file(Path(database.url.database or ""))
    return database


def _database_tls(settings: Settings) -> ssl.SSLContext:
    files = TlsFiles(
        ca=settings.database_tls_ca,
        cert=settings.database_tls_cert,
        key=settings.database_tls_key,
        verify=settings.database_tls_verify,
    )
    try:
        return context_of(files)
    except OSError as error:
        raise SettingRefused("database_tls", f"a certificate or key cannot be used: {error}") from None


async def _redis(settings: Settings, stack: AsyncExitStack, *, start: bool) -> tuple[str, Sequence[asyncio.Task[None]]]:
    """Where Redis is, and what keeps the embedded one running."""
    if settings.redis_url != EMBEDDED:
        return settings.redis_url, ()
    folder = settings.home / "redis"
    if not start:
        return url_of(folder), ()
    server = await EmbeddedRedis.start(folder)
    stack.push_async_callback(server.stop)
    tending = asyncio.create_task(server.tend(), name="embedded redis")
    stack.push_async_callback(_end, tending)
    return server.url, (tending,)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _redis_client(url: str, settings: Settings) -> RedisClient:
    password = settings.redis_sentinel_password
    options = RedisOptions(
        timeout_s=settings.redis_timeout_s,
        connect_timeout_s=settings.redis_connect_timeout_s,
        pool_max=settings.redis_pool_max,
        tls=_redis_tls(settings) if url.lower().startswith("rediss") else None,
        sentinel_username=settings.redis_sentinel_username,
        sentinel_password=None if password is None else password.get_secret_value(),
    )
    try:
        return RedisClient(url, options)
    except UrlRefused as error:
        raise SettingRefused("redis_url", str(error)) from None


def _redis_tls(settings: Settings) -> ssl.SSLContext:
    files = redis_tls.TlsFiles(
        ca=settings.redis_tls_ca,
        cert=settings.redis_tls_cert,
        key=settings.redis_tls_key,
        verify=settings.redis_tls_verify,
    )
    try:
        return redis_tls.context_of(files)
    except OSError as error:
        raise SettingRefused("redis_tls_ca", f"a certificate or key cannot be used: {error}") from None


def open_transport(settings: Settings, clock: Clock) -> Transport:
    scheme, _, rest = settings.broker_url.partition(":")
    match scheme:
        case "embedded":
            return _embedded_transport(settings, clock, rest)
        case "rocketmq5":
            return _rocketmq5_transport(settings, rest.removeprefix("//").rstrip("/"))
        case "rocketmq4":
            return _rocketmq4_transport(settings, rest.removeprefix("//").rstrip("/"))
        case _:
            known = "embedded, embedded:PATH, rocketmq5://host:port or rocketmq4://host:port"
            raise SettingRefused("broker_url", f"no transport {scheme!r} in this release: {known}")


def _embedded_transport(settings: Settings, clock: Clock, path: str) -> Transport:
    folder = private_folder(Path(path) if path else settings.home)
    private_file(folder / FILE_NAME)
    embedded = EmbeddedSettings(
        transaction_timeout_s=settings.transaction_timeout_s,
        check_interval_s=settings.transaction_check_interval_s,
        check_max=settings.transaction_check_max,
        check_deadline_s=min(5.0, settings.transaction_check_interval_s),
    )
    return EmbeddedTransport(folder, clock, embedded)


def _rocketmq5_transport(settings: Settings, proxy: str) -> Transport:
    """Its client package is an extra: imported only here, and missed with a sentence of its own."""
    from service.adapters.rocketmq.grpc.settings import GrpcSettings
    from service.adapters.rocketmq.grpc.transport import GrpcTransport

    if not settings.rocketmq_nameserver:
        raise SettingRefused("rocketmq_nameserver", "a RocketMQ broker_url needs it: host:port of the name server")
    secret = settings.rocketmq_secret_key
    try:
        grpc = GrpcSettings(
            proxy=proxy,
            name_servers=settings.rocketmq_nameserver,
            prefix=settings.topic_prefix,
            order_topic=Topics.named(settings.topic_prefix).order.name,
            access_key=settings.rocketmq_access_key or "",
            secret_key=secret.get_secret_value() if secret else "",
            namespace=settings.rocketmq_namespace or "",
            tls=settings.rocketmq_tls,
            admin_tls=settings.rocketmq_admin_tls,
            tls_ca=settings.rocketmq_tls_ca,
            call_timeout_s=settings.rocketmq_timeout_s,
        )
    except ValueError as error:
        raise SettingRefused("broker_url", str(error)) from error
    return GrpcTransport(grpc)


def _rocketmq4_transport(settings: Settings, name_servers: str) -> Transport:
    """As above. Its URL names the name servers."""
    from service.adapters.rocketmq.classic.settings import ClassicSettings
    from service.adapters.rocketmq.classic.transport import ClassicTransport

    for name in ("rocketmq_tls", "rocketmq_admin_tls"):
        if getattr(settings, name):
            raise SettingRefused(name, "the native client speaks no TLS: unset it, or use rocketmq5, which does")
    secret = settings.rocketmq_secret_key
    try:
        classic = ClassicSettings(
            name_servers=name_servers,
            prefix=settings.topic_prefix,
            order_topic=Topics.named(settings.topic_prefix).order.name,
            access_key=settings.rocketmq_access_key or "",
            secret_key=secret.get_secret_value() if secret else "",
            namespace=settings.rocketmq_namespace or "",
            call_timeout_s=settings.rocketmq_timeout_s,
            payment_window_s=settings.payment_window_s,
        )
    except ValueError as error:
        raise SettingRefused("broker_url", str(error)) from error
    return ClassicTransport(classic)
