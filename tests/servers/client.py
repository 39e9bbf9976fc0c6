"""Which of RocketMQ's two clients this environment has: they install the same import package."""

from __future__ import annotations

from importlib import metadata

NATIVE_CLIENT = "rocketmq-client-python"


def has_native_client() -> bool:
    try:
        metadata.distribution(NATIVE_CLIENT)
    except metadata.PackageNotFoundError:
        return False
    return True
