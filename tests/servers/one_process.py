"""A server that is one process in a folder of its own: its life, the same for each of them."""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.install import program
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess


class OneProcessServer(ABC):
    """`start` returns when it answers. Address and data stay over restarts; later settings win."""

    name: ClassVar[str]
    executable: ClassVar[str]
    answer: ClassVar[str]
    """What its answer is, in the words of a failure."""
    ready_within_s: ClassVar[float]

    def __init__(self, *settings: str) -> None:
        self._program = program(self.executable)
        self.folder = Path(tempfile.mkdtemp(prefix=f"dropgate-{self.name}-"))
        self.port = free_ports()
        self.ready_s = 0.0
        """How long the last start took."""
        self.process = ServerProcess(self.name, self._command(settings), self.folder)

    @property
    @abstractmethod
    def url(self) -> str:
        """As the setting of this server's address wants it."""

    @abstractmethod
    def _command(self, settings: Sequence[str]) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def _prepare(self) -> None:  # noqa: B027 - most need nothing
        """Before each start."""

    def start(self) -> None:
        began = time.monotonic()
        try:
            self._prepare()
            self.process.launch()
            self.process.wait_until(self._answers, self.answer, self.ready_within_s)
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.monotonic() - began

    def restart(self) -> None:
        self.process.stop()
        self.start()

    def stop(self) -> None:
        """For good: the folder goes too."""
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        self.process.kill()
