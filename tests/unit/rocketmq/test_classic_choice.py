"""`rocketmq4` where the other client has its place: said when the transport is chosen."""

from __future__ import annotations

import pytest

from service.adapters.system_clock import SystemClock
from service.bootstrap.adapters import open_transport
from service.domain.errors import SettingRefused
from service.settings import Settings


def refusal(**settings: object) -> SettingRefused:
    with pytest.raises(SettingRefused) as refused:
        open_transport(Settings(**settings), SystemClock())  # type: ignore[arg-type]
    return refused.value


def test_the_grpc_client_in_the_environment_is_said_with_the_remedy() -> None:
    said = refusal(broker_url="rocketmq4://127.0.0.1:9876")
    assert said.setting == "broker_url"
    assert "takes the place of rocketmq-client-python: `pip uninstall rocketmq-python-client`" in said.problem


def test_a_scheme_that_there_is_not_is_told_which_there_are() -> None:
    assert "rocketmq4://host:port" in refusal(broker_url="rocketmq3://h:1").problem
