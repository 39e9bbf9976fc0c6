"""The discarded half messages of a whole cluster lie in one topic: whose is which."""

from __future__ import annotations

import pytest

from service.adapters.rocketmq.grpc.settings import GrpcSettings


@pytest.mark.parametrize(
    ("namespace", "topic", "ours"),
    [
        ("", "dropgate-order", True),
        ("", "dropgate-eu-order", False),
        ("shop", "shop%dropgate-order", True),
        ("shop", "dropgate-order", False),
    ],
)
def test_another_deployments_prefix_may_begin_with_ours(namespace: str, topic: str, ours: bool) -> None:
    settings = GrpcSettings(
        proxy="127.0.0.1:8081", name_servers="127.0.0.1:9876", namespace=namespace, order_topic="dropgate-order"
    )
    assert settings.sends_halves_to(topic) is ours
