"""Fixtures that several suites share."""

from __future__ import annotations

from pathlib import Path

from service.adapters.rocketmq.packages import NATIVE, installed

NATIVE_TESTS, TESTS_OF_BOTH = "pytest.mark.rocketmq4", "pytest.mark.either_client"

pytest_plugins = [
    "tests.fixtures.certificates",
    "tests.fixtures.processes",
    "tests.fixtures.proxy",
    "tests.fixtures.real_servers",
    "tests.fixtures.sentinels",
    "tests.fixtures.servers",
    "tests.fixtures.sql",
    "tests.fixtures.stacks",
    "tests.fixtures.stage",
    "tests.fixtures.fleet",
    "tests.fixtures.whole_fleet",
]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """RocketMQ's two clients exclude each other, and so do their tests: an environment has one of them, and tests of
    the other's cannot even be imported there. A few speak to whichever client there is. None: collect it as usual."""
    if not collection_path.is_file() or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if TESTS_OF_BOTH in text or (NATIVE_TESTS in text) == installed(NATIVE.name) else True
