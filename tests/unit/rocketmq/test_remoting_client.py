"""The client against servers that misbehave: each call ends by its deadline, in a typed error, and leaves nothing."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.frames import FRAME_BYTES_MAX, Frame, Request
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.adapters.rocketmq.remoting.routes import NameServers
from service.domain.errors import BrokerRefused, BrokerUnavailable

DEADLINE_S = 0.25
LATEST_S = 10.0
"""A busy machine's patience, far below what a call without a deadline would take: for ever."""
ASK = Request(code=105, fields={"topic": "t"})

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = Callable[[int], bytes]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """Its address. It must not outlive the test, nor may its connections."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    listener = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()


@asynccontextmanager
async def client(timeout_s: float = DEADLINE_S) -> AsyncIterator[RemotingClient]:
    """No task of it is left."""
    before = asyncio.all_tasks()
    client = RemotingClient(RemotingOptions(timeout_s=timeout_s))
    yield client
    await client.close()
    left = [task for task in asyncio.all_tasks() - before if "rocketmq remoting" in task.get_name()]
    assert left == []


async def question(reader: asyncio.StreamReader) -> int:
    """Read a request; its number."""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(length)
    (header,) = struct.unpack(">i", data[:4])
    return int(msgspec.json.decode(data[4 : 4 + header])["opaque"])


def answer(opaque: int, code: int = 0, body: bytes = b"", flag: int = 1, **more: object) -> bytes:
    header = msgspec.json.encode({"code": code, "flag": flag, "opaque": opaque, **more})
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def answering(*answers: Answer) -> Serve:
    """The first question gets the first answer, and so on; the last one for all that come after."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(answers)
        while True:
            opaque = await question(reader)
            writer.write((left.pop(0) if len(left) > 1 else left[0])(opaque))
            await writer.drain()

    return serve


async def fails(address: str, asking: RemotingClient) -> BrokerUnavailable:
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable) as caught:
        await asking.call(address, ASK)
    assert time.monotonic() - began < LATEST_S
    return caught.value


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_answers_find_their_questions_in_any_order() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        numbers = [await question(reader) for _ in range(20)]
        for number in reversed(numbers):
            writer.write(answer(number, body=str(number).encode()))
        await reader.read()

    async with server(serve) as address, client(LATEST_S) as asking:
        found: list[Frame] = await asyncio.gather(*(asking.call(address, ASK) for _ in range(20)))
        assert [it.body for it in found] == [str(it.opaque).encode() for it in found]
        assert len({it.opaque for it in found}) == 20


@pytest.mark.parametrize("code", [17, 16, 26, 29, 3, 999])
async def test_a_refusal_says_the_brokers_remark_and_only_its_first_line(code: int) -> None:
    remark = "topic[t] not exist, apply first please!\nSee some page\nat java.lang.Thread"
    async with server(answering(lambda it: answer(it, code, remark=remark))) as address, client() as asking:
        with pytest.raises(BrokerRefused) as caught:
            await asking.call(address, ASK)
    assert caught.value.why == f"answer {code}: topic[t] not exist, apply first please!"


@pytest.mark.parametrize("code", [1, 2, 14, 215])
async def test_a_broker_in_trouble_is_unavailable_not_refusing(code: int) -> None:
    async with server(answering(lambda it: answer(it, code))) as address, client() as asking:
        assert type(await fails(address, asking)) is BrokerUnavailable


async def test_a_late_answer_a_foreign_one_and_a_servers_question_are_not_taken_for_mine() -> None:
    strangers = (lambda it: answer(it + 1) + answer(it, flag=0) + answer(it - 1) + answer(it, body=b"mine"),)
    async with server(answering(*strangers)) as address, client(LATEST_S) as asking:
        assert (await asking.call(address, ASK)).body == b"mine"
        assert (await asking.call(address, ASK)).body == b"mine"


async def test_the_same_answer_twice_does_no_harm() -> None:
    async with server(answering(lambda it: answer(it, body=b"1") * 2)) as address, client(LATEST_S) as asking:
        for _ in range(3):
            assert (await asking.call(address, ASK)).body == b"1"


# --- servers that are rude --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda it: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda it: struct.pack(">i", FRAME_BYTES_MAX + 1) + b"x" * 100,
        lambda it: struct.pack(">i", -5),
        lambda it: struct.pack(">iI", 4, 99) + b"x" * 99,
        lambda it: struct.pack(">iI", 6, 1 << 24 | 2) + b"{}",
        lambda it: struct.pack(">iI", 6, 2) + b"{]",
    ],
    ids=["http", "oversize", "negative", "header too long", "binary header", "wrong JSON"],
)
async def test_what_is_no_frame_ends_all_calls_at_once_and_the_next_one_connects_again(wrong: Answer) -> None:
    first = [True]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broken, first[0] = first[0], False
        await answering(wrong if broken else lambda it: answer(it, body=b"well"))(reader, writer)

    async with server(serve) as address, client(LATEST_S) as asking:
        failed = await asyncio.gather(*(asking.call(address, ASK) for _ in range(3)), return_exceptions=True)
        assert [type(it) for it in failed] == [BrokerUnavailable] * 3
        assert "does not speak RocketMQ's remoting protocol" in str(failed[0])
        assert (await asking.call(address, ASK)).body == b"well"


@pytest.mark.parametrize("cut", [0, 2, 7, 20, -1])
async def test_an_answer_that_ends_early_is_unavailable(cut: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await question(reader), body=b"body")[:cut])
        await writer.drain()
        writer.close()

    async with server(serve) as address, client(LATEST_S) as asking:
        assert "closed the connection" in str(await fails(address, asking))


async def test_half_an_answer_and_then_silence_is_unavailable_by_the_deadline() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await question(reader), body=b"body")[:-1])
        await reader.read()

    async with server(serve) as address, client() as asking:
        assert "no answer within" in str(await fails(address, asking))


async def test_a_server_that_does_not_read_is_unavailable_by_the_deadline() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(LATEST_S)

    async with server(serve) as address, client() as asking:
        with pytest.raises(BrokerUnavailable, match="no answer within"):
            await asking.call(address, Request(code=17, body=bytes(FRAME_BYTES_MAX - 10_000)))


async def test_a_silent_connection_is_not_used_again_and_its_other_questions_go_on() -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        numbers = [await question(reader) for _ in range(2 if len(connections) == 1 else 1)]
        if len(connections) == 1:
            await asyncio.sleep(3 * DEADLINE_S)
        for number in numbers:
            writer.write(answer(number, body=b"%d" % len(connections)))
        await reader.read()

    async with server(serve) as address, client(LATEST_S) as asking:
        patient = asyncio.create_task(asking.call(address, ASK))
        with pytest.raises(BrokerUnavailable):
            await asking.call(address, ASK, timeout_s=DEADLINE_S)
        assert (await asking.call(address, ASK)).body == b"2"
        assert (await patient).code == 0
    assert len(connections) == 2


async def test_a_cancelled_question_leaves_the_others_alone() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await question(reader)
        second = await question(reader)
        writer.write(answer(second, body=b"second"))
        await reader.read()

    async with server(serve) as address, client(LATEST_S) as asking:
        first = asyncio.create_task(asking.call(address, ASK))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(asking.call(address, ASK))
        await asyncio.sleep(0.05)
        first.cancel()
        assert (await second).body == b"second"
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_closing_ends_what_is_in_flight() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(serve) as address, client(LATEST_S) as asking:
        waiting = asyncio.create_task(asking.call(address, ASK))
        await asyncio.sleep(0.05)
        await asking.close()
        with pytest.raises(BrokerUnavailable, match="it was closed"):
            await waiting


async def test_nobody_there_and_no_address_are_typed_errors() -> None:
    async with client() as asking:
        assert type(await fails("127.0.0.1:9", asking)) is BrokerUnavailable
        assert type(await fails("nonsense", asking)) is BrokerRefused
        assert type(await fails("a" * 300 + ":1", asking)) is BrokerUnavailable


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=64), st.booleans())
def test_whatever_a_server_sends_the_call_ends_in_time_and_leaves_nothing(data: bytes, closes: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await question(reader)
        writer.write(data)
        await writer.drain()
        if not closes:
            await reader.read()

    async def ask() -> None:
        async with server(serve) as address, client(0.05) as asking:
            await fails(address, asking)

    asyncio.run(ask())


# --- answers that are frames, and nonsense ----------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"topicConfigTable":[]}', b'{"a":{0:"b"}}'])
async def test_a_body_that_cannot_be_read_is_unavailable(body: bytes) -> None:
    async with server(answering(lambda it: answer(it, body=body))) as address, client() as asking:
        admin, queues = BrokerAdmin(asking, address), BrokerQueues(asking, address)
        calls = [admin.topics(), admin.groups(), queues.offsets("t", 0), queues.consumer_offset("g", "t", 0)]
        failed = await asyncio.gather(*calls, queues.pull("t", 0, 0, 1), return_exceptions=True)
        assert [type(it) for it in failed] == [BrokerUnavailable] * 5
        assert await queues.view(0) is None


@pytest.mark.parametrize("body", [b"", b"[]", b'{"brokerDatas":[{}]}'])
async def test_a_route_that_cannot_be_read_is_unavailable(body: bytes) -> None:
    async with server(answering(lambda it: answer(it, body=body))) as address, client() as asking:
        with pytest.raises(BrokerUnavailable, match="cannot be read"):
            await NameServers(asking, address).route("t")


async def test_a_broker_without_a_master_is_not_listed() -> None:
    body = b"""{"brokerDatas":[{"brokerName":"a","cluster":"c","brokerAddrs":{"1":"10.0.0.1:1"}},
        {"brokerName":"b","cluster":"c","brokerAddrs":{"0":"10.0.0.2:2","1":"10.0.0.3:3"}}],
        "queueDatas":[{"brokerName":"a","readQueueNums":4,"writeQueueNums":4,"perm":6},
        {"brokerName":"b","readQueueNums":2,"writeQueueNums":3,"perm":6}]}"""
    async with server(answering(lambda it: answer(it, body=body))) as address, client() as asking:
        (part,) = await NameServers(asking, address).route("t")
    assert (part.broker, part.address, part.read_queues, part.write_queues) == ("b", "10.0.0.2:2", 2, 3)


async def test_a_name_server_that_is_still_empty_is_not_believed_where_another_knows() -> None:
    body = b"""{"brokerDatas":[{"brokerName":"b","cluster":"c","brokerAddrs":{"0":"10.0.0.2:2"}}],
        "queueDatas":[{"brokerName":"b","readQueueNums":2,"writeQueueNums":3,"perm":6}]}"""
    knows, empty = answering(lambda it: answer(it, body=body)), answering(lambda it: answer(it, code=17))
    async with server(knows) as knowing, server(empty) as just_started, client() as asking:
        for addresses in (f"{just_started};{knowing}", f"{knowing};{just_started};127.0.0.1:9"):
            (part,) = await NameServers(asking, addresses).route("t")
            assert part.address == "10.0.0.2:2"
        with pytest.raises(BrokerRefused, match="answer 17"):
            await NameServers(asking, f"{just_started};127.0.0.1:9").route("t")


async def test_name_servers_are_needed() -> None:
    with pytest.raises(BrokerRefused, match="no address"):
        NameServers(RemotingClient(), " ; ")


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_a_deadline_is_above_0(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        RemotingOptions(timeout_s=timeout_s)
