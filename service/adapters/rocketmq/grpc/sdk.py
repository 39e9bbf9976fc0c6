"""rocketmq-python-client, imported here only: what it does at import that a server must not do is prevented first.

SettingRefused: the package is missing, or the other client has its place.
"""

from __future__ import annotations

import logging
import sys
import time
from types import ModuleType

from service.adapters.rocketmq import packages
from service.domain.errors import SettingRefused
from service.observability.actions import Action
from service.observability.log import warn

OURS = packages.GRPC
LOG_MODULE = "rocketmq.v5.log.log_config"
LOG_EVERY_S = 10.0
"""The package's complaints come in floods while a broker is away; our own lines say what follows from them."""


class _Forward(logging.Handler):
    """What the package complains of, as lines of our log: one in `LOG_EVERY_S`, with how many were left out."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._next_s = 0.0
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._left_out += 1
            return
        self._next_s = now_s + LOG_EVERY_S
        why = record.getMessage().partition("\n")[0]
        warn(Action.LOOP_FAILED, loop=OURS.name, why=why, left_out=self._left_out)
        self._left_out = 0


class _Logger(logging.Logger):
    """It calls `warn`, which is deprecated: where warnings are errors, a read of its stream would end by one."""

    warn = logging.Logger.warning


def _without_log_files() -> None:
    """At import the package makes a folder in the user's home and opens a log file there: no home, no start. Its
    logger is the only thing in the module that does so, and ours is there first."""
    module = ModuleType(LOG_MODULE)
    logger = _Logger(OURS.name, logging.WARNING)
    logger.addHandler(_Forward())
    vars(module)["logger"] = logger
    sys.modules[LOG_MODULE] = module


def _is_told_otherwise(record: logging.LogRecord) -> bool:
    """A heartbeat that fails is logged by the package, and raised once more in a callback, where Python logs it with a
    traceback, every 10 s."""
    return not (record.exc_info and isinstance(record.exc_info[1], RpcError))


packages.require(OURS, not_with=packages.NATIVE)
_without_log_files()

try:
    from grpc import ChannelConnectivity, RpcError
    from rocketmq import ClientConfiguration, Credentials, FilterExpression, Producer, SimpleConsumer
    from rocketmq.grpc_protocol import definition_pb2 as definition
    from rocketmq.grpc_protocol import service_pb2 as protocol
    from rocketmq.v5.client.connection import RpcClient, RpcEndpoints
    from rocketmq.v5.util import MessageIdCodec, Misc
except ImportError as error:
    raise SettingRefused("broker_url", f"{OURS.name} cannot be imported ({error}): `{OURS.install}` again") from error

logging.getLogger("concurrent.futures").addFilter(_is_told_otherwise)

__all__ = [
    "ChannelConnectivity",
    "ClientConfiguration",
    "Credentials",
    "FilterExpression",
    "MessageIdCodec",
    "Misc",
    "Producer",
    "RpcClient",
    "RpcEndpoints",
    "RpcError",
    "SimpleConsumer",
    "definition",
    "protocol",
]
