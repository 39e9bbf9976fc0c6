"""One item's trouble is its own: it neither ends nor holds up nor starves the others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from consumers.loop import take_turns
from service.adapters.memory.clock import ManualClock
from service.core import apart as apart_module
from service.core.apart import REST_IN_DOUBT_MAX_S, REST_MAX_S, Apart
from service.domain.errors import CannotStart, Conflict, DropgateError, InvariantBroken, StockUnavailable

REFUSED = InvariantBroken("row", "it exists")
AWAY = StockUnavailable("redis", "no answer")


class Work:
    """Does one thing an item; those in `trouble` raise."""

    def __init__(self, **trouble: BaseException) -> None:
        self.trouble = trouble
        self.tries: Counter[str] = Counter()

    async def __call__(self, item: str) -> int:
        self.tries[item] += 1
        await asyncio.sleep(0)
        if item in self.trouble:
            raise self.trouble[item]
        return 1


async def turn(apart: Apart, work: Work, items: str = "abc") -> int:
    return await apart.each(items, lambda item: item, work)


@pytest.mark.parametrize("error", [REFUSED, AWAY, Conflict("no")])
async def test_what_fails_rests_while_the_others_go_on(error: DropgateError) -> None:
    clock = ManualClock()
    apart, work = Apart("test", clock), Work(b=error)
    for _ in range(3):
        assert await turn(apart, work) == 2
    assert work.tries == {"a": 3, "b": 1, "c": 3}
    assert apart.resting() == {"b"}
    await clock.advance(1.0)
    del work.trouble["b"]
    assert await turn(apart, work) == 3
    assert apart.resting() == frozenset()


@pytest.mark.parametrize(("error", "longest_s"), [(AWAY, REST_IN_DOUBT_MAX_S), (REFUSED, REST_MAX_S)])
async def test_it_rests_ever_longer_but_a_store_that_is_back_is_noticed_soon(
    error: DropgateError, longest_s: float
) -> None:
    clock = ManualClock()
    apart, work = Apart("test", clock), Work(b=error)
    for _ in range(20):
        await turn(apart, work)
        await clock.advance(longest_s)
        assert apart.resting() == frozenset()
    await turn(apart, work)
    await clock.advance(longest_s - 0.1)
    assert apart.resting() == {"b"}


async def test_a_turn_in_which_all_failed_has_failed_and_one_without_anything_to_do_has_not() -> None:
    apart, work = Apart("test", ManualClock()), Work(a=AWAY, b=AWAY)
    with pytest.raises(StockUnavailable):
        await turn(apart, work, "ab")
    assert await turn(apart, work, "ab") == 0, "both rest"


async def test_an_item_that_hangs_costs_its_deadline_and_no_more() -> None:
    apart = Apart("test", ManualClock(), deadline_s=0.05)

    async def work(item: str) -> int:
        if item == "b":
            await asyncio.Event().wait()
        return 1

    assert await apart.each("abc", str, work) == 2
    assert apart.resting() == {"b"}


async def test_items_run_side_by_side_up_to_the_bound() -> None:
    running = most = 0

    async def work(_: int) -> int:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.001)
        running -= 1
        return 1

    assert await Apart("test", ManualClock(), at_once=3).each(range(20), str, work) == 20
    assert most == 3


async def test_a_bug_is_raised_at_once() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await turn(Apart("test", ManualClock()), Work(b=KeyError("bug")))
    assert raised.group_contains(KeyError) if hasattr(raised, "group_contains") else raised.value.subgroup(KeyError)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_module, "RESTING_MAX", 2)
    apart = Apart("test", ManualClock())
    for item in "abcd":
        with pytest.raises(InvariantBroken):
            await turn(apart, Work(**{item: REFUSED}), item)
    assert apart.resting() == {"c", "d"}


# --- loops ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [REFUSED, AWAY, Conflict("no")])
async def test_a_loop_survives_what_dropgate_raises_on_purpose(error: DropgateError) -> None:
    stop = asyncio.Event()
    turns = 0

    async def once() -> int:
        nonlocal turns
        turns += 1
        if turns < 3:
            raise error
        stop.set()
        return 1

    loop = asyncio.create_task(take_turns("test", once, interval_s=0.1, stop=stop, clock=(clock := ManualClock())))
    while not loop.done():
        await clock.advance(1.0)
        await asyncio.sleep(0)
    assert turns == 3
    await loop


@pytest.mark.parametrize("error", [KeyError("bug"), CannotStart("redis", "no binary")])
async def test_a_loop_dies_of_a_bug_and_of_what_no_turn_can_mend(error: Exception) -> None:
    async def once() -> int:
        raise error

    with pytest.raises(type(error)):
        await take_turns("test", once, interval_s=0.1, stop=asyncio.Event(), clock=ManualClock())
