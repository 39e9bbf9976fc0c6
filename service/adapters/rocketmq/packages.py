"""RocketMQ's two client packages. Both install the import package `rocketmq`: where both are, one has overwritten the
other, so an environment has one of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from service.domain.errors import SettingRefused


@dataclass(frozen=True, kw_only=True)
class Package:
    name: str
    transport: str

    @property
    def install(self) -> str:
        return f"pip install 'dropgate[{self.transport}]'"


GRPC = Package(name="rocketmq-python-client", transport="rocketmq5")
NATIVE = Package(name="rocketmq-client-python", transport="rocketmq4")


def installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def require(ours: Package, *, not_with: Package) -> None:
    """SettingRefused: it is not there, or the other one has its place."""
    other = not_with.name
    if installed(other):
        raise SettingRefused(
            "broker_url",
            f"{other} is installed and takes the place of {ours.name}: `pip uninstall {other}`, then `{ours.install}`",
        )
    if not installed(ours.name):
        raise SettingRefused(
            "broker_url", f"{ours.transport} needs {ours.name}, which is not installed: `{ours.install}`"
        )
