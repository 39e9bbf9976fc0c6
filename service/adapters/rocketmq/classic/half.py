"""One half message between a thread that sends it and the event loop on which its transaction is decided."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from enum import Enum, auto

from service.domain.check_back import Verdict


class _State(Enum):
    SENT = auto()
    BEGUN = auto()
    GIVEN_UP = auto()


class Half:
    """Begun by the thread, once the broker has it, or given up by the caller before: never both."""

    def __init__(self, decide_timeout_s: float) -> None:
        self._within_s = decide_timeout_s
        self._loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._state = _State.SENT
        self._verdict: Future[Verdict] = Future()

    @property
    def is_given_up(self) -> bool:
        return self._state is _State.GIVEN_UP

    @property
    def is_wanted(self) -> bool:
        """Neither begun nor given up: it may be sent once more."""
        return self._state is _State.SENT

    def begin(self) -> Verdict:
        """On the thread: waits for the verdict. Whoever gave up has deducted nothing, and nobody will."""
        with self._lock:
            if self._state is _State.GIVEN_UP:
                return Verdict.ROLLBACK
            self._state = _State.BEGUN
        try:
            self._loop.call_soon_threadsafe(self._say_begun)
            return self._verdict.result(self._within_s)
        except (TimeoutError, RuntimeError):  # late, or the loop is gone
            return Verdict.UNKNOWN

    def give_up(self) -> bool:
        """False: it has begun."""
        with self._lock:
            if self._state is _State.BEGUN:
                return False
            self._state = _State.GIVEN_UP
            return True

    def end(self, verdict: Verdict) -> None:
        """The first word counts."""
        if not self._verdict.done():
            self._verdict.set_result(verdict)

    def _say_begun(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
