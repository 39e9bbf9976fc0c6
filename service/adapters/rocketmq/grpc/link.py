"""One of the package's clients, and calls through it that can be awaited, each with a deadline.

The package keeps the connection, the stream, routes and heartbeats. Its own send, commit, receive and ack block a
thread each and hide the answer; what they are made of (`rpc_client`) hands out futures, and those are awaited here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, TypeVar

from service.adapters.rocketmq.grpc import wire
from service.adapters.rocketmq.grpc.hooks import make_client
from service.adapters.rocketmq.grpc.sdk import RpcClient, RpcEndpoints, RpcError, definition, protocol
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.threads import in_thread
from service.adapters.rocketmq.grpc.wire import Subscriber
from service.domain.errors import BrokerRefused, BrokerUnavailable

GRACE_S = 0.5
"""A call's own deadline comes first; this one is for a package that does not keep it."""

STREAM_S = 365 * 24 * 3600.0
"""A stream's own deadline, as the package has it: none."""

Rpc = Literal[
    "ack_message",
    "change_invisible_duration",
    "end_transaction",
    "forward_message_to_dead_letter_queue",
    "heartbeat",
    "query_topic_route",
    "send_message",
]
Asked = Callable[[RpcEndpoints, Any, str], None]
"""A check-back: whom to answer, the half message, its transaction."""

T = TypeVar("T")


class Link:
    """Opened once, closed once; who wants another makes another. `topics` must be there; `more_topics` were, once."""

    def __init__(
        self,
        settings: GrpcSettings,
        *,
        topics: Sequence[str],
        more_topics: Iterable[str] = (),
        subscriber: Subscriber | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.settings = settings
        self.asked: Asked = asked or (lambda *_: None)
        self.routes: dict[str, Any] = {}
        self._topics, self._more_topics = tuple(topics), tuple(set(more_topics) - set(topics))
        self._loop = asyncio.get_running_loop()
        self.why_silent = "its route was not found"
        """Why the last probe that failed did."""
        self._came_up = threading.Event()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._deaf: set[str] = set()
        """Proxies that did not answer the last probe."""
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By proxy: one whose stream cannot be opened must not keep the others from theirs."""
        self._signature: tuple[int, Sequence[tuple[str, str]]] = (0, ())
        self.may_ask = True
        """For routes. The package asks by a timer of its own, whatever we know of the proxy (`Session.link`)."""
        self._client = make_client(self, settings, self._topics, subscriber)
        self._client.rpc_client.telemetry_write_async = self._write_in_turn
        self._ask_for_route = self._client.rpc_client.query_topic_route_async
        self._client.rpc_client.query_topic_route_async = self._route_if_it_may
        producer = definition.ClientType.PRODUCER
        self._heartbeat = (
            subscriber.heartbeat(definition.ClientType.SIMPLE_CONSUMER)
            if subscriber
            else protocol.HeartbeatRequest(client_type=producer)
        )

    # --- its life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Started, known to the proxies and registered there, so that check-backs come and the first receive finds its
        settings. BrokerUnavailable: it was not, in time, and is abandoned. BrokerRefused: there is no such topic."""
        try:
            async with asyncio.timeout(self.settings.start_timeout_s):
                await in_thread(self._start_up, "rocketmq5: start")
                await self._learn_all()
                await self._until_heard()
        except TimeoutError:
            self.abandon()
            why = f"no connection within {self.settings.start_timeout_s:g} s: {self.why_silent}"
            raise BrokerUnavailable(self.settings.proxy, why) from None
        except BaseException:
            self.abandon()
            raise

    async def _learn_all(self) -> None:
        for topic in self._topics:
            await self.learn(topic)
        for topic in self._more_topics:
            with suppress(BrokerRefused):  # gone meanwhile: whoever sends there will hear of it
                await self.learn(topic)

    async def learn(self, topic: str) -> Sequence[Any]:
        """The topic's queues. The package only says that it has no route: so the proxy is asked for its reason."""
        if topic not in self.routes:
            proxy = self._client.client_configuration.rpc_endpoints
            answer = await self.call("query_topic_route", proxy, wire.route(topic, proxy))
            wire.check_status(answer.status, topic)
            await in_thread(lambda: self._client.learn(topic), "rocketmq5: route")
        route = self.routes.get(topic)
        if route is None:
            raise BrokerUnavailable(topic, "its route is not known")
        return [queue for queue in route.message_queues if queue.is_master_broker()]

    async def close(self) -> None:
        """Takes leave of the broker, so that nothing is sent to who is gone. Bounded: what hangs is left behind."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.close_timeout_s):
                await in_thread(self._shut_down, "rocketmq5: stop")

    def abandon(self) -> None:
        """Closed in its own time, if ever: nobody waits for it."""
        threading.Thread(target=self._shut_down, name="rocketmq5: abandoned", daemon=True).start()

    def _start_up(self) -> None:
        try:
            self._client.startup()
        finally:
            self._came_up.set()

    def _shut_down(self) -> None:
        """One that has not come up has connections too. One that is still coming up refuses, and would start its timers
        afterwards, for ever: so its calls are ended first, and its start is waited for."""
        if not self._came_up.is_set():
            with suppress(Exception):
                self._client.rpc_client.stop()
            self._came_up.wait(self.settings.call_timeout_s + GRACE_S)
        with suppress(Exception):
            self._client.shutdown()
        with suppress(Exception):
            self._client.rpc_client.stop()

    def pass_on(self, to: Callable[..., None], *arguments: object) -> None:
        """From the package's threads to our event loop, which may be gone."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(to, *arguments)

    # --- signs of life ------------------------------------------------------------------------------------------------

    def endpoints(self) -> Sequence[RpcEndpoints]:
        """Of all proxies that the routes name."""
        return list(self._client.route_manager.get_all_endpoints().values())

    async def probe(self) -> int:
        """How many proxies gave a sign of life, each on the stream on which its check-backs would come."""
        endpoints = self.endpoints()
        alive = await asyncio.gather(*map(self._probe, endpoints))
        self._deaf = {it.facade for it, answered in zip(endpoints, alive, strict=True) if not answered}
        return sum(alive)

    def answering(self, queues: Sequence[Any]) -> Sequence[Any]:
        """Those behind a proxy that answered the last probe; all of them where none did. A host that dies without a
        word stays in the routes for minutes, and every call to it takes the whole time of a call."""
        return [queue for queue in queues if queue.endpoints.facade not in self._deaf] or queues

    def heard(self, facade: str) -> None:
        for waiter in self._waiting.pop(facade, []):
            if not waiter.done():
                waiter.set_result(None)

    async def _until_heard(self) -> None:
        while self.endpoints() and not await self.probe():  # noqa: ASYNC110 - each turn asks
            await asyncio.sleep(self.settings.attempt_pause_s)

    async def _probe(self, endpoints: RpcEndpoints) -> bool:
        """Our settings are sent and come back: the stream lives, and a proxy that was restarted knows us again. Then a
        heartbeat: the broker knows us as one to ask, and to deliver to."""
        waiter = self._loop.create_future()
        self._waiting.setdefault(endpoints.facade, []).append(waiter)
        within_s = self.settings.probe_timeout_s
        try:
            async with asyncio.timeout(within_s):
                settings = self._client.sync_setting_req(endpoints)
                await self._result(self._write_in_turn(endpoints, settings), within_s)
                await waiter
                answer = await self.call("heartbeat", endpoints, self._heartbeat)
            wire.check_status(answer.status, self.settings.proxy)
        except TimeoutError:
            self.why_silent = f"{endpoints} does not answer on its stream"
            return False
        except BrokerUnavailable as error:
            self.why_silent = f"{endpoints}: {error.why}"
            return False
        return True

    def _write_in_turn(self, endpoints: RpcEndpoints, request: Any) -> Future[None]:
        """In place of the package's own, which writes its settings whenever it likes: two writes at once end a stream
        ("RPC already finished"), and its repair fails for want of an event loop in its thread. No check-back comes
        until it is replaced."""
        return self._on_io(lambda: self._write(endpoints, request))

    def _route_if_it_may(self, *arguments: Any, **named: Any) -> Future[Any]:
        if self.may_ask:
            asked: Future[Any] = self._ask_for_route(*arguments, **named)
            return asked
        refused = Future[Any]()
        refused.set_exception(ConnectionError("the proxy gives no sign of life, and is not asked for routes"))
        return refused

    async def _write(self, endpoints: RpcEndpoints, request: Any) -> None:
        """On the package's loop, where its channels and streams belong."""
        rpc = self._client.rpc_client
        async with self._writing[endpoints.facade], asyncio.timeout(self.settings.probe_timeout_s):
            stream = rpc.retrieve_or_create_channel(endpoints).telemetry_stream_stream_call
            if stream is not None:
                with suppress(RpcError, asyncio.InvalidStateError):
                    await stream.stream_write(request)
                    return
            channel = rpc.telemetry_stream(endpoints, self._client, self._signed(), True, timeout=STREAM_S)
            await channel.telemetry_stream_stream_call.stream_write(request)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(self, rpc: Rpc, endpoints: RpcEndpoints, request: Any, timeout_s: float | None = None) -> Any:
        """The answer, whatever its status. BrokerUnavailable: none came."""
        within_s = timeout_s or self.settings.call_timeout_s
        method = getattr(self._client.rpc_client, f"{rpc}_async")
        return await self._result(method(endpoints, request, self._signed(), timeout=within_s), within_s)

    def _signed(self) -> Sequence[tuple[str, str]]:
        """What a call says of its sender. The signature is over the second, and making it is a tenth of what a call
        costs: so it is made once in a second."""
        second, (signed_second, signature) = int(time.time()), self._signature
        if second != signed_second:
            signature = self._client.sign()
            self._signature = (second, signature)
        return signature

    async def receive(self, endpoints: RpcEndpoints, request: Any, timeout_s: float) -> Sequence[Any]:
        """A long poll's answers. Cancelled, it is cancelled at the proxy too, which gives back what it has popped."""
        return await self._result(self._on_io(lambda: self._poll(endpoints, request, timeout_s)), timeout_s)

    async def _poll(self, endpoints: RpcEndpoints, request: Any, timeout_s: float) -> Sequence[Any]:
        stream = await self._client.rpc_client.receive_message(
            endpoints, request, metadata=self._signed(), timeout=timeout_s
        )
        answers: list[Any] = []
        try:
            async for answer in stream:
                answers.append(answer)  # noqa: PERF401 - what has come counts, also when the stream breaks
        except RpcError:
            if not any(answer.HasField("message") for answer in answers):
                raise
        except asyncio.CancelledError:
            stream.cancel()
            raise
        return answers

    def _on_io(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        async def run() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), RpcClient.get_channel_io_loop())

    async def _result(self, future: Future[T], within_s: float) -> T:
        proxy = self.settings.proxy
        try:
            async with asyncio.timeout(within_s + GRACE_S):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise BrokerUnavailable(proxy, f"no answer within {within_s:g} s") from None
        except RpcError as error:
            raise BrokerUnavailable(proxy, f"{error.code().name}: {error.details()}") from error
        except asyncio.CancelledError:
            # A client that is closed cancels its calls, and this arrives as a cancellation of ours, which it is not.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise BrokerUnavailable(proxy, "the client was closed meanwhile") from None
        except Exception as error:  # the package raises bare ones: "RpcClient is not running."
            raise BrokerUnavailable(proxy, repr(error)) from error
