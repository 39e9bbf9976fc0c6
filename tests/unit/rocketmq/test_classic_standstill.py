"""When a queue counts as one that its client does not read any more."""

from __future__ import annotations

from service.adapters.rocketmq.classic.standstill import Queue, Standstill

FIRST: Queue = ("broker-a", "orders", 0)
SECOND: Queue = ("broker-a", "orders", 1)


def test_one_look_says_nothing_and_a_second_that_is_the_same_does() -> None:
    standstill = Standstill()
    assert standstill.found({FIRST: 3, SECOND: 0}) == []
    assert standstill.found({FIRST: 3, SECOND: 0}) == [FIRST, SECOND]


def test_a_queue_that_goes_on_is_read_however_much_is_left() -> None:
    standstill = Standstill()
    assert [standstill.found({FIRST: at}) for at in (3, 4, 5)] == [[], [], []]


def test_a_queue_that_was_read_to_its_end_meanwhile_begins_anew() -> None:
    standstill = Standstill()
    assert [standstill.found(unread) for unread in ({FIRST: 3}, {}, {FIRST: 3})] == [[], [], []]
