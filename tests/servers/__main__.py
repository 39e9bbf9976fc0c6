"""`python -m tests.servers install | up [--json] [--env FILE] [--short] [--only redis ...]`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from tests.servers import stack, telling
from tests.servers.env_file import env_file
from tests.servers.install import JDK, LIBROCKETMQ, ROCKETMQ_4_SERVER, install
from tests.servers.process import ServerFailed
from tests.servers.rocketmq import SERVED, SHORT

ENV_FILE = Path(".servers") / "env"
LOOK_S = 0.5


def main() -> int:
    arguments = _arguments()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        install(arguments.only)
        if arguments.command == "up":
            _up(arguments)
    except ServerFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\n==> stopped", file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=(__doc__ or ""))
    commands = parser.add_subparsers(dest="command", required=True)
    bring = commands.add_parser("install", help="bring what is missing, and nothing else")
    up = commands.add_parser("up", help="start them, print the settings to use, run until Ctrl-C")
    tested = (*stack.NAMES, JDK)
    for command, names, usual in (
        (bring, (*tested, ROCKETMQ_4_SERVER, LIBROCKETMQ), tested),
        (up, stack.NAMES, stack.NAMES),
    ):
        command.add_argument("--only", nargs="+", choices=names, default=usual, help="not all of them")
    up.add_argument("--json", action="store_true", help="all as one line of JSON, and the settings in no file")
    up.add_argument("--env", type=Path, default=ENV_FILE, metavar="FILE", help="keeps the settings (%(default)s)")
    up.add_argument("--short", action="store_true", help="the broker asks after 2 s, every 2 s, and twice at most")
    return parser.parse_args()


def _up(arguments: argparse.Namespace) -> None:
    options = SHORT if arguments.short else SERVED
    with ExitStack() as opened:
        keep = None if arguments.json else opened.enter_context(env_file(arguments.env))
        progress = telling.Progress(arguments.only)
        servers = opened.enter_context(stack.up(arguments.only, options, progress))
        if keep is None:
            print(telling.as_json(servers), flush=True)
        else:
            keep(telling.exports(servers.settings()))
            print(telling.page(servers, progress.seconds(), arguments.env), flush=True)
        ended = telling.Ended(servers.processes())
        while True:
            time.sleep(LOOK_S)
            ended.look()


def _interrupt(signal_: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
