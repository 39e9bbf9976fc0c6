"""The real servers of the tests: RocketMQ, MariaDB and Redis, on free loopback ports, in temporary folders.

    python -m tests.servers install    what they need, once
    python -m tests.servers up         keep them up for a person; prints the settings to use

Every server here dies with the process that started it. A test gets them as fixtures (tests/fixtures/real_servers.py).
"""
