"""Calls to addresses: a connection each, made when needed and shared; every call ends by its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from ssl import SSLContext

from service.adapters.rocketmq.remoting.codes import TRANSIENT, ResponseCode
from service.adapters.rocketmq.remoting.connection import Connection, ConnectionEnded
from service.adapters.rocketmq.remoting.frames import Frame, MalformedFrame, Request
from service.adapters.rocketmq.remoting.signing import Credentials, signed
from service.domain.errors import BrokerRefused, BrokerUnavailable

SUCCESS = frozenset({ResponseCode.SUCCESS})


@dataclass(frozen=True, kw_only=True)
class RemotingOptions:
    timeout_s: float = 3.0
    """A whole call, connecting included: the broker answers admin requests in milliseconds."""

    tls: SSLContext | None = None
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be above 0")


class RemotingClient:
    """Belongs to one event loop. `close` last."""

    def __init__(self, options: RemotingOptions | None = None) -> None:
        self._options = options or RemotingOptions()
        self._connections: dict[str, Connection] = {}
        self._retired: list[Connection] = []
        self._connecting: dict[str, asyncio.Lock] = {}

    async def call(
        self,
        address: str,
        request: Request,
        *,
        expected: Collection[int] = SUCCESS,
        timeout_s: float | None = None,
    ) -> Frame:
        """The answer, if its code is expected; else BrokerUnavailable, or BrokerRefused where asking again is no use.

        BrokerUnavailable says nothing about whether the request was carried out: ask only what may be asked twice."""
        within_s = timeout_s or self._options.timeout_s
        try:
            async with asyncio.timeout(within_s):
                answer = await self._ask(await self._connection(address), self._signed(request))
        except TimeoutError:
            raise BrokerUnavailable(address, f"no answer within {within_s:g} s") from None
        except (ConnectionEnded, OSError, UnicodeError) as error:
            raise BrokerUnavailable(address, str(error)) from error
        except MalformedFrame as error:
            raise BrokerRefused(address, str(error)) from error
        if answer.code not in expected:
            raise _refusal(address, answer)
        return answer

    async def close(self) -> None:
        connections = [*self._connections.values(), *self._retired]
        self._connections, self._retired = {}, []
        for connection in connections:
            await connection.close()

    async def _ask(self, connection: Connection, request: Request) -> Frame:
        """A connection that is silent up to a deadline is not used again: it may be dead without saying so."""
        heard = connection.heard
        try:
            return await connection.ask(request)
        except asyncio.CancelledError:
            if connection.heard == heard:
                connection.retire()
            raise

    def _signed(self, request: Request) -> Request:
        return signed(request, self._options.credentials) if self._options.credentials else request

    async def _connection(self, address: str) -> Connection:
        """Callers that come while it is being made wait for it, each within its own deadline."""
        async with self._connecting.setdefault(address, asyncio.Lock()):
            known = self._connections.get(address)
            if known is not None and known.usable:
                return known
            host, port = host_and_port(address)
            opened = await Connection.open(host, port, self._options.tls)
            if known is not None:
                self._retired.append(known)
            self._retired = [old for old in self._retired if not old.finished]
            self._connections[address] = opened
            return opened


def host_and_port(address: str) -> tuple[str, int]:
    """`host:port`; an IPv6 host may stand in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65_535:  # noqa: PLR2004 - of TCP
        raise BrokerRefused(address, "an address is host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _refusal(address: str, answer: Frame) -> BrokerUnavailable:
    """The remark's first line: RocketMQ adds a link to its FAQ, and stack traces."""
    remark = answer.remark.strip().splitlines()[0] if answer.remark.strip() else "no remark"
    why = f"answer {answer.code}: {remark}"
    return BrokerUnavailable(address, why) if answer.code in TRANSIENT else BrokerRefused(address, why)
