"""Fixtures that several suites share."""

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
