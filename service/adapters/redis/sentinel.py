"""Which server is the master: asked of all Sentinels at once, and the first that knows is believed.

redis-py asks one after the other, each with its whole time-out: with the first of three silent, a connection would take
longer than a call may. A Sentinel may be behind for a moment: whoever connects looks at the server's role as well
(connecting.py), and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from service.adapters.redis.trouble import SILENT_TO_TLS, words
from service.adapters.redis.url import Server, Watched
from service.domain.errors import StockRefused

Make = Callable[[Server], AbstractConnection]

_AWAY = "look at the Sentinels and at the network to them"
_USER = "correct DROPGATE_REDIS_SENTINEL_USERNAME and DROPGATE_REDIS_SENTINEL_PASSWORD"
_NAME = "correct the service in DROPGATE_REDIS_URL"
_ADDRESS = "name the Sentinels in DROPGATE_REDIS_URL, as a rule on port 26379"


class _NoAnswer(Exception):
    """Of one Sentinel: why it names no master."""

    def __init__(self, sentinel: Server, why: str, remedy: str) -> None:
        super().__init__(f"{sentinel}: {why}")
        self.remedy = remedy


class Sentinels:
    """`make` makes a connection to one of them, not yet connected. Who asks while a question is under way shares it."""

    def __init__(self, watched: Watched, make: Make, *, tls: bool, timeout_s: float) -> None:
        self._watched = watched
        self._make = make
        self._tls = tls
        self._timeout_s = timeout_s
        self._asking: asyncio.Task[Server] | None = None

    async def master(self) -> Server:
        """StockRefused: none of them names one; says why, and the remedy."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all(), name=f"sentinels of {self._watched.service}")
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask_all(self) -> Server:
        tasks = [asyncio.create_task(self._ask(sentinel)) for sentinel in self._watched.sentinels]
        refusals: list[_NoAnswer] = []
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except _NoAnswer as refusal:
                    refusals.append(refusal)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise self._refused(refusals)

    def _refused(self, refusals: Sequence[_NoAnswer]) -> StockRefused:
        """One that answered and said no tells more than one that is away."""
        answered = [it for it in refusals if it.remedy not in {_AWAY, SILENT_TO_TLS}]
        its = answered or refusals
        said = "; ".join(str(it) for it in its)
        return StockRefused("redis", f"no Sentinel names a master of {self._watched.service!r} ({said})", its[0].remedy)

    async def _ask(self, sentinel: Server) -> Server:
        connection = self._make(sentinel)
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
                return await self._answer(sentinel, connection)
        except AuthenticationError:
            raise _NoAnswer(sentinel, "it refuses the user or the password", _USER) from None
        except ResponseError as error:
            raise _not_as_expected(sentinel, error) from None
        except TimeoutError:
            why = f"no answer within {self._timeout_s:g} s"
            raise _NoAnswer(sentinel, why, SILENT_TO_TLS if self._tls else _AWAY) from None
        except (RedisError, OSError) as error:
            why, remedy = words(error)
            raise _NoAnswer(sentinel, why, remedy or _AWAY) from None
        finally:
            await connection.disconnect(nowait=True)

    async def _answer(self, sentinel: Server, connection: AbstractConnection) -> Server:
        reply = await ask(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._watched.service)
        match reply:
            case [bytes(host), bytes(port)]:
                return Server(host=host.decode(), port=int(port))
            case _:
                raise _NoAnswer(sentinel, f"it watches {await _names(connection)}", _NAME)


def _not_as_expected(sentinel: Server, error: ResponseError) -> _NoAnswer:
    if "unknown command" in str(error).lower():
        return _NoAnswer(sentinel, "it is no Sentinel", _ADDRESS)
    return _NoAnswer(sentinel, str(error), _USER)


async def _names(connection: AbstractConnection) -> str:
    try:
        masters = await ask(connection, "SENTINEL", "MASTERS")
    except ResponseError:  # its user may not ask
        return "others"
    if not isinstance(masters, list) or not masters:
        return "nothing"
    return ", ".join(repr(master[1].decode()) for master in masters)


async def ask(connection: AbstractConnection, *command: str) -> object:
    """On a connection that is being opened, within whatever time that has."""
    await connection.send_command(*command, check_health=False)
    reply: object = await connection.read_response()
    return reply
