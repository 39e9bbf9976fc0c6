"""Run a program that ends when its parent does: `python die_with_parent.py PARENT_PID PROGRAM [ARGUMENT...]`.

A process of its own and not a hook between fork and exec, which may dead-lock in a program with threads. Linux kills
the child when the *thread* that started it ends: start it from one that lives as long as the server shall. Elsewhere
there is no such call, and a parent that is killed leaves its server behind; the next start shares it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:  # it died before the call above: no signal will come
            sys.exit("the parent is gone")
    os.execv(command[0], command)  # noqa: S606 - that is the purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
