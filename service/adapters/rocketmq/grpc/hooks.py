"""The package's clients, with what they tell us passed on to a link, and made from our settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from service.adapters.rocketmq.grpc.sdk import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Producer,
    RpcEndpoints,
    SimpleConsumer,
)
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.wire import Subscriber

if TYPE_CHECKING:
    from service.adapters.rocketmq.grpc.link import Link


class _Hooks:
    """What the package tells a subclass; all of it on a thread of the package's, so it is only passed on."""

    link: Link

    def reset_setting(self, settings: Any) -> None:
        super().reset_setting(settings)  # type: ignore[misc]
        self.link.pass_on(self.link.heard, RpcEndpoints(settings.access_point).facade)

    def update_queue_selector(self, topic: str, route: Any) -> None:
        super().update_queue_selector(topic, route)  # type: ignore[misc]
        self.link.routes[topic] = route

    def learn(self, topic: str) -> None:
        """Blocks. From now on its route is kept, and a stream to each of its proxies is open."""
        self._retrieve_topic_route_data(topic)  # type: ignore[attr-defined]


class HookedProducer(_Hooks, Producer):  # type: ignore[misc]
    def on_recover_orphaned_transaction_command(self, endpoints: Any, message: Any, transaction_id: str) -> None:
        """Instead of the package's own: that one runs the callback on a single thread, where one that is slow holds up
        all others and one that raises is lost; and it ends the transaction at once, also when the answer is not known,
        after which the proxy has forgotten it."""
        self.link.pass_on(self.link.asked, endpoints, message, transaction_id)


class HookedConsumer(_Hooks, SimpleConsumer):  # type: ignore[misc]
    pass


def make_client(link: Link, settings: GrpcSettings, topics: Sequence[str], subscriber: Subscriber | None) -> Any:
    """A producer, or who reads as the subscriber says. Not started."""
    configuration = ClientConfiguration(
        settings.proxy,
        Credentials(settings.access_key, settings.secret_key),
        request_timeout=round(settings.call_timeout_s),
    )
    if subscriber is None:
        client = HookedProducer(configuration, topics, None, tls_enable=settings.tls)
    else:
        client = HookedConsumer(
            configuration,
            subscriber.group,
            {subscriber.topic: FilterExpression()},
            await_duration=round(settings.poll_s),
            tls_enable=settings.tls,
        )
    client.link = link
    return client
