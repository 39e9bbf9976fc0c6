"""`dropgate bench`: what it refuses before it measures anything."""

from __future__ import annotations

import pytest

from bench.plan import DEFAULT_GROUPS, Group


@pytest.mark.parametrize(
    "arguments", [("--only", "nothing"), ("--clients", "0"), ("--clients", "a"), ("--clients", "1,,2")]
)
def test_misuse_measures_nothing_and_ends_with_2(dropgate, arguments):
    assert dropgate("bench", *arguments).exit_code == 2


def test_without_real_servers_it_says_which_settings_it_needs(dropgate):
    done = dropgate("bench")
    assert done.exit_code == 2
    assert "DROPGATE_BROKER_URL" in done.output
    assert "make servers" in done.output


def test_the_soak_is_asked_for_by_name():
    assert Group.SOAK not in DEFAULT_GROUPS
