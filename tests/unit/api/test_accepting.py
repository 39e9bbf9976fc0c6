"""A crowd that comes at once is let in at once, however long a turn of the loop takes meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import uvloop

from service.api.app import create_app
from service.api.server import ACCEPTED_A_TURN, HttpServer
from tests.unit.api.fakes import World

CROWD = 160
TURN_S = 0.005
"""Of a loop that has other work: with some hundred requests under way it takes several times as long."""
SPARE = 6
"""Turns from the last accepted to its answer."""
ASKS = b"GET /healthz HTTP/1.1\r\nHost: dropgate\r\n\r\n"


class Busy:
    """Work of each turn of the loop, which it counts."""

    def __init__(self) -> None:
        self.turns = 0
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self.turns += 1
        time.sleep(TURN_S)
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


def test_newcomers_are_not_let_in_one_by_one_while_the_loop_is_busy() -> None:
    """By uvloop, as the API runs: one a turn, and those who come last wait for as many turns as there are clients."""
    turns = uvloop.run(_turns_until_all_are_answered())
    assert turns <= CROWD / ACCEPTED_A_TURN + SPARE


async def _turns_until_all_are_answered() -> int:
    server = HttpServer(create_app(World().services()), "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    port = int(server.url.rpartition(":")[2])
    async with asyncio.timeout(30):
        with _crowd(port) as crowd:
            busy = Busy()
            await asyncio.to_thread(_all_answered, crowd)
            busy.stop()
        server.stop()
        await serving
    return busy.turns


@contextmanager
def _crowd(port: int) -> Iterator[list[socket.socket]]:
    """Connected, and each has asked: the kernel keeps them until the server looks."""
    with ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(CROWD)]
        for each in crowd:
            each.sendall(ASKS)
        yield crowd


def _all_answered(crowd: list[socket.socket]) -> None:
    for each in crowd:
        assert each.recv(64).startswith(b"HTTP/1.1 200")


def test_a_server_that_stops_has_let_go_of_its_port() -> None:
    async def served_and_stopped() -> int:
        server = HttpServer(create_app(World().services()), "127.0.0.1", 0)
        serving = asyncio.create_task(server.serve())
        port = int(server.url.rpartition(":")[2])
        await asyncio.to_thread(lambda: socket.create_connection(("127.0.0.1", port), timeout=30).close())
        server.stop()
        await serving
        return port

    socket.create_server(("127.0.0.1", uvloop.run(served_and_stopped()))).close()
