"""Delay levels by their length, wherever they stand in a broker's list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.rocketmq.classic.levels import EARLY_MAX_S, UNITS_S, DelayLevels
from service.adapters.rocketmq.classic.settings import ClassicSettings

DEFAULT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
QUARTER_S = 900

lists = st.lists(st.tuples(st.integers(1, 90), st.sampled_from(list(UNITS_S))), min_size=1, max_size=30).map(
    lambda pairs: " ".join(f"{count}{unit}" for count, unit in pairs)
)


@pytest.mark.parametrize(
    ("text", "number"), [(f"{DEFAULT} 15m", 19), (f"15m {DEFAULT}", 1), ("1s 900s 1h", 2), ("1h 1s 15m", 3)]
)
def test_a_quarter_of_an_hour_is_found_wherever_it_stands(text: str, number: int) -> None:
    level = DelayLevels.parse(text).until(QUARTER_S)
    assert level is not None
    assert (level.number, level.seconds) == (number, QUARTER_S)


def test_without_it_the_next_longer_one_is_taken() -> None:
    level = DelayLevels.parse(DEFAULT).until(QUARTER_S)
    assert level is not None
    assert level.name == "20m"


def test_a_clock_that_is_a_little_behind_keeps_the_level() -> None:
    levels = DelayLevels.parse(f"{DEFAULT} 15m")
    for ahead_s, name in ((0.9, "15m"), (1.1, "20m")):
        level = levels.until(QUARTER_S + ahead_s)
        assert level is not None
        assert level.name == name


@pytest.mark.parametrize("text", ["", "  ", "1s 5x", "1s -5m", "1s m", "1s 1.5h", "1s 5"])
def test_a_list_that_is_none_is_refused_with_its_word(text: str) -> None:
    with pytest.raises(ValueError, match="messageDelayLevel"):
        DelayLevels.parse(text)


@given(text=lists, delay_s=st.floats(0.001, 10_000_000))
def test_a_level_is_the_shortest_that_is_long_enough(text: str, delay_s: float) -> None:
    levels = DelayLevels.parse(text)
    found = levels.not_shorter(delay_s)
    if found is None:
        assert levels.longest.seconds < delay_s
        return
    assert text.split()[found.number - 1] == found.name
    assert found.seconds >= delay_s
    assert not [it for it in levels.levels if delay_s <= it.seconds < found.seconds]


@given(text=lists, remaining_s=st.floats(0.001, 10_000_000))
def test_a_message_comes_a_second_early_at_most_and_a_hundredth_of_its_delay(text: str, remaining_s: float) -> None:
    level = DelayLevels.parse(text).until(remaining_s)
    if level is not None:
        assert remaining_s - level.seconds <= min(EARLY_MAX_S, remaining_s * 0.01) + 1e-6


@pytest.mark.parametrize("servers", ["", "host", "host:", ":9876", "a:1;b", "[::1]:9876", "a:b"])
def test_name_servers_that_are_none_are_refused(servers: str) -> None:
    with pytest.raises(ValueError, match="rocketmq4://"):
        ClassicSettings(name_servers=servers)


def test_no_secret_is_printed() -> None:
    assert "s3cret" not in repr(ClassicSettings(name_servers="n:1", access_key="a", secret_key="s3cret"))
