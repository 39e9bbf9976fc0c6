"""A Redis user with as few permissions as docs/operations.md says: it may do all that Dropgate does, and no more.

The stock contract (tests/contract/test_stock_contract.py) runs as this user too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from service.adapters.memory.clock import ManualClock
from service.adapters.redis.client import RedisClient
from service.adapters.redis.scripts import load_scripts
from service.adapters.redis.stock import RedisStock
from service.domain.errors import StockRefused, StockUnavailable
from tests.fixtures.acl import PASSWORD, USER, least_user
from tests.fixtures.servers import RealServer
from tests.fixtures.stock import load, new_slot
from tests.servers.redis7 import Redis

pytestmark = pytest.mark.server

BARE = {"ping", "info", "eval", "evalsha", "unlink"}
"""What Dropgate sends itself; the rest is called by scripts."""


@pytest.fixture
async def user(make_redis7: Callable[..., Redis]) -> AsyncIterator[tuple[Redis, RedisStock]]:
    """The user's stock, on a server that the test may change its permissions on."""
    server = make_redis7()
    server.call(*least_user())
    stock = RedisStock(RedisClient(server.url.replace("://", f"://{USER}:{PASSWORD}@")), ManualClock())
    yield server, stock
    await stock.close()


def test_the_page_allows_what_the_scripts_call_and_nothing_else() -> None:
    allowed = {word.removeprefix("+") for word in least_user() if word.startswith("+")}
    assert allowed == BARE | {name.lower() for name in load_scripts().commands()}


async def test_it_is_enough(user: tuple[Redis, RedisStock]) -> None:
    _, stock = user
    slot = new_slot()
    assert await stock.problems() == []
    await load(stock, slot, 10)
    await stock.unlink(slot)


@pytest.mark.parametrize("command", sorted(name.lower() for name in load_scripts().commands() | {"UNLINK"}))
async def test_without_any_of_them_readiness_says_which(user: tuple[Redis, RedisStock], command: str) -> None:
    server, stock = user
    server.call("ACL", "SETUSER", USER, f"-{command}")
    if command == "info":
        with pytest.raises(StockRefused, match="its user may not do this"):
            await stock.problems()
        return
    assert await stock.problems() == [
        f"Redis does not allow {command.upper()} on keys dg:* to this user: "
        "give it the permissions of docs/operations.md"
    ]


@pytest.mark.parametrize("changes", [["resetkeys", "~other:*"], ["-evalsha"], ["resetkeys", "%R~dg:*"]])
async def test_without_scripts_or_keys_nothing_can_be_done_and_it_says_so(
    user: tuple[Redis, RedisStock], changes: list[str]
) -> None:
    server, stock = user
    server.call("ACL", "SETUSER", USER, *changes)
    with pytest.raises(StockRefused) as refused:
        await stock.problems()
    assert (refused.value.why or "").startswith("its user may not do this ("), refused.value
    assert refused.value.remedy == "give it the permissions that docs/operations.md lists (ACL SETUSER)"


HALFWAY = "redis.call('HSET', KEYS[1], 'field', 1) return redis.call('ZADD', KEYS[2], 1, 'member')"


@pytest.mark.parametrize("server_name", ["redis", "valkey"])
async def test_a_script_that_is_stopped_halfway_has_written_and_is_in_doubt(
    make_server: Callable[..., RealServer], server_name: str
) -> None:
    """Not refused, as a command of its own is."""
    server = make_server(server_name)
    server.call("ACL", "SETUSER", "anna", "on", ">secret", "~dg:*", "+@all", "-zadd")
    client = RedisClient(f"unix://anna:secret@{server.socket}")
    with pytest.raises(StockUnavailable) as unknown:
        await client.execute("EVAL", HALFWAY, "2", "dg:a", "dg:b")
    assert not isinstance(unknown.value, StockRefused), unknown.value
    assert (unknown.value.why or "").startswith("its user may not do this ("), unknown.value
    assert unknown.value.remedy == "give it the permissions that docs/operations.md lists (ACL SETUSER)"
    assert server.call("HGET", "dg:a", "field") in {b"1", "1"}
    with pytest.raises(StockRefused, match="its user may not do this"):
        await client.execute("ZADD", "dg:b", "1", "member")
    await client.close()


@pytest.mark.parametrize("server_name", ["redis", "valkey"])
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), "its memory is full"),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), "too few replicas follow it"),
        (("REPLICAOF", "127.0.0.1", "1"), "it is a replica"),
    ],
)
async def test_what_stops_a_script_before_its_first_write_is_a_refusal(
    make_server: Callable[..., RealServer], server_name: str, command: tuple[str, ...], why: str
) -> None:
    server = make_server(server_name)
    client = RedisClient(f"unix://{server.socket}")
    server.call(*command)
    with pytest.raises(StockRefused, match=why):
        await client.execute("EVAL", HALFWAY, "2", "dg:a", "dg:b")
    assert server.call("EXISTS", "dg:a", "dg:b") == 0
    await client.close()


async def test_a_permission_that_a_load_misses_leaves_it_in_doubt(user: tuple[Redis, RedisStock]) -> None:
    """Readiness has shut the gate before."""
    server, stock = user
    slot = new_slot()
    server.call("ACL", "SETUSER", USER, "-hset")
    with pytest.raises(StockUnavailable) as unknown:
        await load(stock, slot, 10)
    assert not isinstance(unknown.value, StockRefused)


async def test_it_may_see_and_change_nothing_else(user: tuple[Redis, RedisStock]) -> None:
    server, stock = user
    server.call("SET", "other", "1")
    client = stock._client
    for command in (["GET", "other"], ["UNLINK", "other"], ["KEYS", "*"], ["FLUSHALL"], ["CONFIG", "GET", "dir"]):
        with pytest.raises(StockRefused, match="its user may not do this"):
            await client.execute(*command)
    assert server.call("GET", "other") == b"1"
