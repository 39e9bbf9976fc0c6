"""One set of native connections: a producer that publishes, and for each topic of half messages one that is asked.

All of it blocks, and is called on threads of ours. The native client learns a broker's address with a topic's route and
a route with a first send; it takes its place among those to be asked only with a heartbeat, one at its start and one
every 30 s. So a first message is sent that every broker refuses, and only then the producer that is to be asked is
started: its first heartbeat goes out at once (F06).
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from service.adapters.rocketmq.classic import library, properties
from service.adapters.rocketmq.classic.half import Half
from service.adapters.rocketmq.classic.library import NativeFailure, dll
from service.adapters.rocketmq.classic.settings import ClassicSettings
from service.adapters.rocketmq.remoting.messages import CHECK_TIMES, UNIQUE_ID
from service.adapters.rocketmq.remoting.producers import HalfPlace
from service.domain.check_back import Verdict
from service.ports.messaging import OutgoingMessage

TOO_MUCH = "x" * 33_000
"""As a property: no broker stores a message with more than 32 KiB of them."""
NATIVE = {Verdict.COMMIT: library.COMMIT, Verdict.ROLLBACK: library.ROLLBACK, Verdict.UNKNOWN: library.UNKNOWN}

_life = threading.Lock()
"""The library keeps its clients in a map without a lock: they start and stop one at a time."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a broker wants to know. Its body ends at the first NUL byte: the package hands out C strings. Ours have
    none, as they are JSON."""

    message_id: str
    key: str
    body: bytes
    check: int
    place: HalfPlace


Asked = Callable[[str, Question], None]
"""Called on a native thread, with the topic as the broker has it."""


class Link:
    """Opened once, closed once. `instance` names its connections; no two links may have the same."""

    def __init__(self, settings: ClassicSettings, instance: str, asked: Asked) -> None:
        self._settings = settings
        self.instance = instance
        self._asked = asked
        self._publisher: int | None = None
        self._askable: dict[str, int] = {}
        self._halves: dict[int, Half] = {}
        """Those that are being sent, by what the native caller carries for us."""
        self._numbers = count(1)
        self._local = library.LocalTransaction(self._on_local)
        self._kept: list[object] = []
        """What the client calls: ctypes forgets a callback that nobody refers to."""
        self.heard_s = time.monotonic()
        """When a broker answered last."""

    # --- its life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """NativeFailure: it did not start."""
        with _life:
            self._publisher = self._started(dll.CreateProducer(self._group("publisher")))

    def open_topic(self, topic: str) -> None:
        """Half messages may be sent there, and this process is asked about all of the topic's producer group. It is
        named as the topic is, as the gRPC proxy does it: so processes of both transports answer for each other."""
        self._learn(topic)
        on_check = library.CheckBackFunction(lambda _, message, __: self._on_check(topic, message))
        self._kept.append(on_check)
        with _life:
            client = dll.CreateTransactionProducer(topic.encode(), on_check, None)
            self._askable[topic] = self._started(client)

    def beat(self) -> bool:
        """A heartbeat, now: a producer that starts sends one for all that share its connections. Whether all brokers
        answered: one that does not costs the whole time-out, and its connection is closed for the next."""
        began_s = time.monotonic()
        with _life:
            client = self._started(dll.CreateProducer(self._group("beat")))
            answered = time.monotonic() - began_s < self._settings.heartbeat_timeout_s / 2
            _stop(client)
        if answered:
            self.heard_s = time.monotonic()
        return answered

    def close(self) -> None:
        """Only when nothing is being sent: what sends then would use memory that is gone."""
        clients = [*self._askable.values(), *([self._publisher] if self._publisher is not None else [])]
        self._askable, self._publisher = {}, None
        for client in clients:
            with _life:
                _stop(client)

    def _group(self, what: str) -> bytes:
        return self._settings.full(f"{self._settings.prefix}-{what}").encode()

    def _started(self, client: int | None) -> int:
        if client is None:
            raise NativeFailure("no memory for a client")
        settings = self._settings
        credentials = (settings.access_key, settings.secret_key) if settings.access_key else None
        library.configure(client, name_servers=settings.name_servers, instance=self.instance, credentials=credentials)
        library.require(
            dll.SetProducerSendMsgTimeout(client, round(settings.attempt_timeout_s * 1000)), "time-out of a send"
        )
        library.require(dll.SetProducerMaxMessageSize(client, settings.body_bytes_max), "largest message")
        library.require(dll.StartProducer(client), "start")
        return client

    def _learn(self, topic: str) -> None:
        """Nobody answers it, and the broker stores nothing."""
        message = OutgoingMessage(topic=topic, key="", body=b"route", properties={"too-much": TOO_MUCH})
        with _native(message, topic, level=None) as native:
            library.require(dll.SendMessageOneway(self._publisher, native), "route")

    # --- sending ------------------------------------------------------------------------------------------------------

    def publish(self, message: OutgoingMessage, level: int | None) -> None:
        """NativeFailure: it may be stored."""
        with _native(message, self._settings.full(message.topic), level) as native:
            self._at_last(lambda: self._publish(message, native), lambda: True)

    def _publish(self, message: OutgoingMessage, native: int) -> None:
        result = library.SendResult()
        if message.fifo_group is None:
            status = dll.SendMessageSync(self._publisher, native, ctypes.byref(result))
        else:
            group = message.fifo_group.encode()
            status = dll.SendMessageOrderlyByShardingKey(self._publisher, native, group, ctypes.byref(result))
        self._require_stored(status, result)

    def send_half(self, message: OutgoingMessage, half: Half) -> None:
        """Until the transaction has ended. NativeFailure: it was not stored, or not for sure, and not begun."""
        if half.is_given_up:
            return
        topic, number = self._settings.full(message.topic), next(self._numbers)
        self._halves[number] = half
        try:
            with _native(message, topic, level=None) as native:
                self._at_last(lambda: self._send_half(topic, native, number), lambda: half.is_wanted)
        finally:
            del self._halves[number]

    def _send_half(self, topic: str, native: int, number: int) -> None:
        result = library.SendResult()
        told = ctypes.byref(result)
        status = dll.SendMessageTransaction(self._askable[topic], native, self._local, number, told)
        self._require_stored(status, result)

    def _at_last(self, send: Callable[[], None], is_wanted: Callable[[], bool]) -> None:
        """The package's own attempts all come at once. Where several threads find no connection, one makes it, and the
        sends of the others have failed by then (seen); a moment later it is there."""
        ends_s = time.monotonic() + self._settings.call_timeout_s
        for attempt in range(1, self._settings.attempts + 1):
            try:
                return send()
            except NativeFailure:
                if attempt == self._settings.attempts or time.monotonic() >= ends_s or not is_wanted():
                    raise
            time.sleep(self._settings.attempt_pause_s * 2 ** (attempt - 1))
        raise AssertionError("attempts is at least 1")

    def _require_stored(self, status: int, result: Any) -> None:
        library.require(status, "not sent")
        self.heard_s = time.monotonic()
        if result.sendStatus != library.OK:
            raise NativeFailure(f"stored, but not on a second disk or broker ({result.sendStatus})")

    # --- called by the library ----------------------------------------------------------------------------------------

    def _on_local(self, _: int, __: int, number: int) -> int:
        """What leaves a callback as an exception is an answer to the native caller: whatever lies there."""
        try:
            return NATIVE[self._halves[number].begin()]
        except Exception:  # noqa: BLE001 - see above
            return library.UNKNOWN

    def _on_check(self, topic: str, message: int) -> int:
        """Not waited for: the package asks on one thread, one question after the other. The broker takes UNKNOWN for no
        answer, and gets the real one from our event loop."""
        with suppress(Exception):  # as above; it will be asked again
            self._asked(topic, _question(message))
        return library.UNKNOWN


def _question(message: int) -> Question:
    check = library.property_of(message, CHECK_TIMES)
    return Question(
        message_id=library.property_of(message, UNIQUE_ID) or library.text(dll.GetMessageId(message)),
        key=library.text(dll.GetMessageKeys(message)).partition(" ")[0],
        body=dll.GetMessageBody(message) or b"",
        check=int(check) if check.isascii() and check.isdecimal() else 1,
        place=HalfPlace(
            queue_offset=dll.GetMessageQueueOffset(message), commit_log_offset=dll.GetMessageCommitLogOffset(message)
        ),
    )


@contextmanager
def _native(message: OutgoingMessage, topic: str, level: int | None) -> Iterator[int]:
    """The library's own copy; it frees none by itself."""
    native = dll.CreateMessage(topic.encode())
    try:
        library.require(dll.SetByteMessageBody(native, message.body, len(message.body)), "body")
        if message.key:
            library.require(dll.SetMessageKeys(native, message.key.encode()), "key")
        for name, value in properties.with_names(message.properties).items():
            library.require(dll.SetMessageProperty(native, name.encode(), value.encode()), "property")
        if level is not None:
            library.require(dll.SetDelayTimeLevel(native, level), "delay level")
        yield native
    finally:
        dll.DestroyMessage(native)


def _stop(client: int) -> None:
    dll.ShutdownProducer(client)
    dll.DestroyProducer(client)
