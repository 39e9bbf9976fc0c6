"""What is said while the bench runs: how far it is of the whole run, and how long it may still take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from bench.measures.desk import Desk
from bench.plan import Group, Options
from bench.progress import FEW, Course
from bench.run import Bench, Entrant, Progress
from bench.stand.dropgate import Stand
from bench.steps import ON_SQL, ROCKETMQ5


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(course: Course, clock: Clock, *steps: tuple[str, int, float]) -> list[str]:
    """Their lines; each step is (name, round, seconds that it takes)."""
    lines = []
    for name, round_, lasts_s in steps:
        lines.append(course.begin(name, round_))
        clock.now_s += lasts_s
    return lines


def test_a_line_counts_over_the_whole_run_and_names_its_round(clock: Clock) -> None:
    course = Course(planned=["a", "b", "a", "b"], rounds=2, clock=clock)
    lines = begun(course, clock, ("a", 1, 1), ("b", 1, 1), ("b", 2, 1))
    assert lines == ["[1/4] round 1 of 2: a", "[2/4] round 1 of 2: b", "[3/4] round 2 of 2: b"]


def test_where_there_is_one_round_none_is_named(clock: Clock) -> None:
    assert Course(planned="ab", rounds=1, clock=clock).begin("a", 1) == "[1/2] a"


def test_once_a_few_are_through_each_step_is_thought_to_last_as_the_others_did(clock: Clock) -> None:
    course = Course(planned="abcdef", rounds=1, clock=clock)
    lines = begun(course, clock, ("a", 1, 10), ("b", 1, 20), ("c", 1, 30), ("d", 1, 60), ("e", 1, 1))
    assert FEW == 3
    assert lines[2:] == ["[3/6] c", "[4/6] d (about 60 s left)", "[5/6] e (about 60 s left)"]


def test_before_half_of_the_first_round_is_through_no_time_is_guessed(clock: Clock) -> None:
    course = Course(planned="abcdefghij" * 2, rounds=2, clock=clock)
    lines = begun(course, clock, *((name, 1, 1) for name in "abcdef"))
    assert [line for line in lines if "left" in line] == ["[6/20] round 1 of 2: f (about 15 s left)"]


def test_a_step_of_a_later_round_is_thought_to_last_as_it_did_in_whatever_order_it_comes(clock: Clock) -> None:
    course = Course(planned=["quick", "slow", "other"] * 2, rounds=2, clock=clock)
    first = (("quick", 1, 1), ("slow", 1, 300), ("other", 1, 60))
    *_, second, third, last = begun(course, clock, *first, ("other", 2, 60), ("slow", 2, 300), ("quick", 2, 1))
    assert second == "[4/6] round 2 of 2: other (about 6 min left)"
    assert third == "[5/6] round 2 of 2: slow (about 5 min left)"
    assert last == "[6/6] round 2 of 2: quick (about 1 s left)"


def test_the_whole_run_is_known_before_anything_runs(tmp_path: Path) -> None:
    engine = create_async_engine("mysql+aiomysql://nobody@127.0.0.1:9/bench")
    stand = Stand(name="rocketmq5", python="python", environment={}, folder=tmp_path)
    groups = frozenset({Group.FLOORS, Group.HTTP, Group.STORIES})
    bench = Bench(
        desk=Desk(environment={}, engine=engine, folder=tmp_path, warm_s=0, seconds=1),
        options=Options(groups=groups, clients=(16, 64), repeats=3, warm_s=0, seconds=1, soak_s=10),
        entrants=[Entrant(stand=stand, subjects=ROCKETMQ5), Entrant(stand=stand, subjects=ON_SQL, on_sql=True)],
        name_server="",
        jars=tmp_path,
        progress=Progress(began=print, failed=print),
    )
    planned = Counter(bench.planned())
    for name in (
        "Starlette, echo, 16 clients",
        "Dropgate, sql rejects, 64 clients",
        "Dropgate, rocketmq5, hostile requests",
    ):
        assert planned[name] == 3
    assert planned["RocketMQ Java client, bare half messages, 64 threads"] == 3
    assert planned["Dropgate, rocketmq5, rush"] == 1, "a story is told once"
    assert not [name for name in planned if "strategy" in name or "soak" in name]
