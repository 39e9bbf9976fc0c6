"""Fixtures that several suites share."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

NATIVE_CLIENT = "rocketmq-client-python"
NATIVE_TESTS = "pytest.mark.rocketmq4"

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
    the other's cannot even be imported there. None: collect it as usual."""
    if not collection_path.is_file() or not collection_path.name.startswith("test_"):
        return None
    is_native = NATIVE_TESTS in collection_path.read_text(encoding="utf-8")
    return None if is_native == _has_native_client() else True


def _has_native_client() -> bool:
    try:
        metadata.distribution(NATIVE_CLIENT)
    except metadata.PackageNotFoundError:
        return False
    return True
