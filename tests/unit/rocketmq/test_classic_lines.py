"""A FIFO topic's order, which the native client does not keep: one message of a queue at a time."""

from __future__ import annotations

import asyncio
from typing import cast

from service.adapters.rocketmq.classic.child import Child
from service.adapters.rocketmq.classic.frames import Message
from service.adapters.rocketmq.classic.lines import AsItComes, Held, OneOfAQueue
from tests.contract.messaging_stage import eventually

REORDER_S = 0.05
NO_CHILD = cast(Child, None)


def held(offset: int, *, queue: int = 0) -> Held:
    message = Message(
        number=offset,
        topic="t",
        message_id="id",
        key=f"{queue}-{offset}",
        body=b"",
        reconsumed=0,
        born_at_ms=0,
        queue_id=queue,
        queue_offset=offset,
        offset=offset,
        properties={},
    )
    return Held(child=NO_CHILD, message=message)


def offsets(taken: object) -> list[int]:
    return [it.message.queue_offset for it in cast(list[Held], taken)]


async def taken(lines: OneOfAQueue) -> Held:
    """The one that may go, once it may."""
    found: list[Held] = []

    def may_go() -> bool:
        found.extend(lines.take(8))
        return bool(found)

    await eventually(may_go, 5.0)
    (one,) = found
    return one


async def test_what_overtook_waits_for_what_it_overtook() -> None:
    lines = OneOfAQueue(REORDER_S, lambda: None)
    for offset in (2, 1, 3):
        lines.add(held(offset))
    assert lines.take(8) == []
    seen = []
    for _ in range(3):
        seen.append(one := await taken(lines))
        lines.finished(one)
    assert offsets(seen) == [1, 2, 3]


async def test_what_follows_goes_at_once_and_what_leaves_a_gap_waits() -> None:
    lines = OneOfAQueue(REORDER_S, lambda: None)
    lines.add(held(5))
    lines.finished(await taken(lines))
    lines.add(held(6))
    (next_one,) = lines.take(8)
    lines.finished(next_one)
    lines.add(held(8))
    assert lines.take(8) == []
    lines.add(held(7))
    assert offsets(lines.take(8)) == [7]


async def test_one_of_a_queue_is_out_at_a_time_and_the_others_go_on() -> None:
    lines = OneOfAQueue(0.0, lambda: None)
    for queue in (0, 1):
        for offset in (1, 2):
            lines.add(held(offset, queue=queue))
    out = lines.take(8)
    assert sorted(it.message.key for it in out) == ["0-1", "1-1"]
    assert lines.take(8) == []
    (first,) = [it for it in out if it.message.queue_id == 1]
    lines.finished(first)
    assert [it.message.key for it in lines.take(8)] == ["1-2"]


async def test_what_comes_again_is_the_next_of_its_queue() -> None:
    lines = OneOfAQueue(REORDER_S, lambda: None)
    lines.add(held(1))
    lines.add(held(2))
    first = await taken(lines)
    first.repeats += 1
    lines.add(first)
    assert lines.take(8) == [first]
    assert first.attempt == 2


async def test_whoever_waits_is_woken_once_what_arrived_may_go() -> None:
    woken = asyncio.Event()
    lines = OneOfAQueue(REORDER_S, woken.set)
    lines.add(held(9))
    async with asyncio.timeout(5.0):
        await woken.wait()
    assert offsets(lines.take(1)) == [9]


async def test_no_queue_is_left_out_where_one_is_taken_at_a_time() -> None:
    lines = OneOfAQueue(0.0, lambda: None)
    for queue in range(4):
        for offset in range(8):
            lines.add(held(offset, queue=queue))
    turns = []
    for _ in range(8):
        (one,) = lines.take(1)
        turns.append(one.message.queue_id)
        lines.finished(one)
    assert set(turns) == {0, 1, 2, 3}


async def test_other_topics_messages_go_as_they_come() -> None:
    lines = AsItComes()
    for offset in (3, 1, 2):
        lines.add(held(offset))
    assert (offsets(lines.take(2)), offsets(lines.take(2))) == ([3, 1], [2])
    lines.add(held(4))
    lines.clear()
    assert lines.take(1) == []
