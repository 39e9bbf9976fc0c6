"""What a process that measures uses itself: a client that has no core left measures itself."""

from __future__ import annotations

import resource
import time

from bench.figures import Usage


class OwnUse:
    """From when it is made."""

    def __init__(self) -> None:
        self._began_s, self._cpu_at_s = time.monotonic(), time.process_time()

    def until_now(self, process: str) -> Usage:
        """`process`: its name in tables. The memory is the most that it ever had, on Linux."""
        cores = (time.process_time() - self._cpu_at_s) / (time.monotonic() - self._began_s)
        return Usage(
            process=process, cores=cores, resident_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        )
