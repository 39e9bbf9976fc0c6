"""One child process with the package's consumer in it (worker.py): started, pinged, killed.

It inherits nothing but its end of a socket pair.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryFile
from typing import BinaryIO

from service.adapters.rocketmq.classic import frames
from service.adapters.rocketmq.classic.bounds import ConsumerBounds
from service.adapters.rocketmq.classic.frames import Begin, Begun, BrokenFrame, Failed, Message, Ping, Settled, ToChild
from service.domain.errors import BrokerUnavailable

WORKER = "service.adapters.rocketmq.classic.worker"
SAID_BYTES = 400
"""Of the end of what it said: a line of a traceback, or what the package printed."""
REAPED_WITHIN_S = 5.0
"""A killed process is gone at once, unless its disk is."""
READ_BUFFER = 256 * 1024


class Child:
    """Made by `start`. `ended` says why it is of no use any more, and never changes."""

    def __init__(
        self,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        instance: str,
        said: BinaryIO,
    ) -> None:
        self._process = process
        self._reader, self._writer = reader, writer
        self._said = said
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pong = asyncio.Event()
        self._heard_s = self._now_s()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.client = f"@{process.pid}#{instance}"
        """How its id at the brokers ends; it begins with an address."""
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        begin: Begin,
        bounds: ConsumerBounds,
        on_message: Callable[[Child, Message], None],
        *,
        within_s: float,
    ) -> Child:
        """BrokerUnavailable: its client has not started, and it is gone."""
        child = await cls._spawn(begin.instance)
        child._tasks = [
            asyncio.create_task(child._listen(on_message), name=f"rocketmq4: child of {begin.group}"),
            asyncio.create_task(child._keep_pinging(bounds), name=f"rocketmq4: pings to the child of {begin.group}"),
        ]
        child._send(begin)
        try:
            async with asyncio.timeout(within_s):
                await child._begun
        except TimeoutError:
            await child.kill()
            raise BrokerUnavailable(begin.group, f"its consumer has not started within {within_s:g} s") from None
        except BaseException:
            await child.kill()
            raise
        return child

    @classmethod
    async def _spawn(cls, instance: str) -> Child:
        """What it says goes to a file without a name. Linux ends it with the *thread* that starts it: the loop's."""
        said = TemporaryFile()  # noqa: SIM115 - it is read when the child has ended
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", WORKER, str(theirs.fileno()), str(os.getpid())),
                stdin=DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=(theirs.fileno(),),
            )
            reader, writer = await asyncio.open_connection(sock=ours, limit=READ_BUFFER)
        except BaseException:
            ours.close()
            said.close()
            raise
        finally:
            theirs.close()
        return cls(process, reader, writer, instance, said)

    @property
    def pid(self) -> int:
        return self._process.pid

    def settle(self, number: int) -> None:
        self._send(Settled(number))

    async def caught_up(self) -> None:
        """All that it was told before has reached its client's threads."""
        self._pong.clear()
        self._send(Ping())
        await self._pong.wait()

    async def kill(self) -> None:
        """Whatever it is at: what it holds is not acknowledged."""
        self._end("it was killed")
        with suppress(ProcessLookupError):
            self._process.kill()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(REAPED_WITHIN_S):
                await self._process.wait()
        self._said.close()

    def _send(self, frame: ToChild) -> None:
        """Never waits: its socket takes what it has to be told of all the messages that it holds."""
        if not self.ended.done():
            self._writer.write(frames.encode(frame))

    async def _listen(self, on_message: Callable[[Child, Message], None]) -> None:
        try:
            while True:
                frame = await frames.read(self._reader)
                self._heard_s = self._now_s()
                match frame:
                    case Message():
                        on_message(self, frame)
                    case Ping():
                        self._pong.set()
                    case Begun():
                        self._begun.set_result(None)
                    case Failed(why=why):
                        self._end(why)
                        return
        except (asyncio.IncompleteReadError, OSError):
            await self._say_its_end()
        except BrokenFrame as error:
            self._end(f"it says what cannot be read: {error}")

    async def _say_its_end(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REAPED_WITHIN_S):
                await self._process.wait()
        self._end(f"it ended by itself ({self._process.returncode}) {_last_line(self._said)}".rstrip())

    async def _keep_pinging(self, bounds: ConsumerBounds) -> None:
        """A loop that was late itself has not read what the child said meanwhile: that is no silence."""
        while (silent_s := self._now_s() - self._heard_s) < bounds.silent_after_s or not self._begun.done():
            self._send(Ping())
            asked_s = self._now_s()
            await asyncio.sleep(bounds.ping_every_s)
            if self._now_s() - asked_s > 2 * bounds.ping_every_s:
                self._heard_s = self._now_s()
        self._end(f"it gave no sign of life for {silent_s:.1f} s")

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)
        if not self._begun.done():
            self._begun.set_exception(BrokerUnavailable("rocketmq4", f"the consumer did not start: {why}"))
            self._begun.exception()  # nobody may be left to ask for it

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _last_line(said: BinaryIO) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES))
    return said.read().decode(errors="replace").strip().rpartition("\n")[2]
