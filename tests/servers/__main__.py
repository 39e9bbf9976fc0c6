"""`python -m tests.servers install | up [--json] [--short] [--only redis ...]`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from tests.servers import stack
from tests.servers.install import install
from tests.servers.process import ServerFailed
from tests.servers.rocketmq import DEFAULT, SHORT


def main() -> int:
    arguments = _arguments()
    try:
        install(arguments.only)
        if arguments.command == "up":
            _up(arguments.only, json_=arguments.json, short=arguments.short)
    except ServerFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=(__doc__ or ""))
    commands = parser.add_subparsers(dest="command", required=True)
    bring = commands.add_parser("install", help="bring what is missing, and nothing else")
    bring.add_argument("--only", nargs="+", choices=stack.NAMES, default=stack.NAMES, help="not for all three")
    up = commands.add_parser("up", help="start them, print the settings to use, run until Ctrl-C")
    up.add_argument("--json", action="store_true", help="the settings as one line of JSON")
    up.add_argument("--short", action="store_true", help="check-backs after 2 s, and 2 of them at most")
    up.add_argument("--only", nargs="+", choices=stack.NAMES, default=stack.NAMES, help="not all three")
    return parser.parse_args()


def _up(names: Sequence[str], *, json_: bool, short: bool) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if not json_:
            print(f"==> starting {', '.join(names)} (RocketMQ takes 15 to 40 s)", flush=True)
        with stack.up(names, SHORT if short else DEFAULT) as servers:
            _tell(servers, json_=json_)
            signal.pause()
    except KeyboardInterrupt:
        if not json_:
            print("\n==> stopped")


def _tell(servers: stack.Stack, *, json_: bool) -> None:
    settings, broker = servers.settings(), servers.rocketmq
    addresses = {} if broker is None else {"name_server": broker.name_server, "broker": broker.broker}
    if json_:
        print(json.dumps({"settings": settings, **addresses}), flush=True)
        return
    print("Up. In another terminal:\n")
    for name, value in settings.items():
        print(f"  export {name}={value}")
    for name, value in addresses.items():
        print(f"\nRocketMQ's {name.replace('_', ' ')}: {value}", end="")
    print("\n\nCtrl-C stops them; what they hold is lost then.", flush=True)


def _interrupt(signal_: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
