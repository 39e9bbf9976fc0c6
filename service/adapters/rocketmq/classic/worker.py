"""The child process of a consumer: `python -m service.adapters.rocketmq.classic.worker SOCKET PARENT`.

The package's PushConsumer lives here and nowhere else. Its `shutdown` under load ends in a segmentation fault (seen),
its threads and its memory cannot be taken back, and its callbacks would fight an event loop for the interpreter. So it
is never shut down: this process ends, by a signal, by its parent's silence, or with its parent.

Each of the client's threads hands one message to the parent and waits. RECONSUME_LATER is never answered: the package
would send the message back with its own number of attempts in place of the group's. The orderly callback is not used,
for FIFO topics either: while it holds the last message of a queue, the package stores that it was consumed (seen), and
a kill would lose it. The parent keeps the order (lines.py).
"""

from __future__ import annotations

import ctypes
import os
import queue
import resource
import signal
import socket
import sys
import threading
import traceback
from itertools import count
from typing import Any, NoReturn

from service.adapters.rocketmq.classic import frames, properties
from service.adapters.rocketmq.classic.frames import Begin, Begun, Failed, Message, Ping, Settled, ToParent

PR_SET_PDEATHSIG = 1
CONSUME_SUCCESS = 0
SAID_BYTES_MAX = 64 * 1024
"""Of what this process may write into a file: a traceback, and whatever the package prints."""


class Worker:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, queue.SimpleQueue[None]] = {}
        """As many as the client has threads."""
        self._kept: list[object] = []
        """What the client calls: ctypes forgets a callback that nobody refers to."""

    def run(self) -> None:
        """Until the parent ends, or is silent for too long: then it is stopped, and others shall have its queues."""
        begin = frames.receive(self._connection)
        if not isinstance(begin, Begin):
            return
        self._connection.settimeout(begin.silence_max_s)
        self._send(self._begun(begin))
        while (frame := frames.receive(self._connection)) is not None:
            match frame:
                case Settled(number=number):
                    self._waiting.pop(number).put(None)
                case Ping():
                    self._send(frame)
                case Begin():
                    return

    def _begun(self, begin: Begin) -> Begun | Failed:
        try:
            self._start(begin)
        except Exception as error:  # noqa: BLE001 - said to the parent, whatever it is
            return Failed(str(error) or repr(error))
        return Begun()

    def _start(self, begin: Begin) -> None:
        from rocketmq.ffi import MSG_CALLBACK_FUNC, MessageModel  # noqa: PLC0415 - what is missing is said to the parent

        from service.adapters.rocketmq.classic.library import NO_LOG, SIGNING_CHANNEL, dll, require  # noqa: PLC0415

        client = dll.CreatePushConsumer(begin.group.encode())
        dll.SetPushConsumerMaxCacheMessageSize.argtypes = [ctypes.c_void_p, ctypes.c_int]
        require(dll.SetPushConsumerLogLevel(client, NO_LOG), "log level")
        require(dll.SetPushConsumerNameServerAddress(client, begin.name_servers.encode()), "name servers")
        require(dll.SetPushConsumerInstanceName(client, begin.instance.encode()), "instance")
        require(dll.SetPushConsumerMessageModel(client, MessageModel.CLUSTERING), "message model")
        require(dll.SetPushConsumerThreadCount(client, begin.threads), "threads")
        require(dll.SetPushConsumerMaxCacheMessageSize(client, begin.cached_max), "cached messages")
        if begin.access_key:
            keys = (begin.access_key.encode(), begin.secret_key.encode(), SIGNING_CHANNEL)
            require(dll.SetPushConsumerSessionCredentials(client, *keys), "credentials")
        require(dll.Subscribe(client, begin.topic.encode(), b"*"), "subscription")
        callback = MSG_CALLBACK_FUNC(lambda _, message: self._hand_over(dll, message))
        self._kept.append(callback)
        require(dll.RegisterMessageCallback(client, callback), "callback")
        require(dll.StartPushConsumer(client), "start")

    def _hand_over(self, dll: Any, handle: int) -> int:
        """On a thread of the client: until the parent has settled it. This process ends before that wait does."""
        number, settled = next(self._numbers), queue.SimpleQueue[None]()
        self._waiting[number] = settled
        try:
            self._send(_message(dll, number, handle))
            settled.get()
        except BaseException:  # noqa: BLE001 - whatever the client were answered now would lose the message, or send it back
            _end()
        return CONSUME_SUCCESS

    def _send(self, frame: ToParent) -> None:
        data = frames.encode(frame)
        with self._sending:
            self._connection.sendall(data)


def _message(dll: Any, number: int, handle: int) -> Message:
    def value_of(name: str) -> str:
        return _text(dll.GetMessageProperty(handle, name.encode()))

    return Message(
        number=number,
        topic=_text(dll.GetMessageTopic(handle)),
        message_id=_text(dll.GetMessageId(handle)),
        key=_text(dll.GetMessageKeys(handle)).split(" ")[0],
        body=dll.GetMessageBody(handle) or b"",
        reconsumed=dll.GetMessageReconsumeTimes(handle),
        born_at_ms=dll.GetMessageBornTimestamp(handle),
        queue_id=dll.GetMessageQueueId(handle),
        queue_offset=dll.GetMessageQueueOffset(handle),
        offset=dll.GetMessageCommitLogOffset(handle),
        properties=properties.read(value_of(properties.NAMES), value_of),
    )


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _end_with(parent: int) -> None:
    """Linux ends this process with its parent, even while it is stopped; elsewhere the socket's end does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone")


def main(descriptor: int, parent: int) -> None:
    """Signals that a terminal or a supervisor sends to all of a group are the parent's matter: it stops this one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end_with(parent)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SAID_BYTES_MAX, SAID_BYTES_MAX))
    try:
        Worker(socket.socket(fileno=descriptor)).run()
    except Exception:  # noqa: BLE001 - the parent reads the end of what is said here
        _end()
    os._exit(0)


def _end() -> NoReturn:
    """At once: nothing of the package's own may run at its end."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
