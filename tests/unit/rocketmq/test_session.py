"""When a client is used, doubted, replaced and believed again: a session over links that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from service.adapters.rocketmq.grpc.link import Link
from service.adapters.rocketmq.grpc.session import Session
from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.domain.errors import BrokerUnavailable
from tests.fixtures.stage_tools import until

SETTINGS = GrpcSettings(
    proxy="p:1",
    name_servers="n:1",
    probe_every_s=0.02,
    probe_timeout_s=0.05,
    deaf_after_s=0.1,
    reconnect_every_s=0.02,
)


class FakeLink:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.routes: dict[str, object] = {}
        self.why_silent = "a test"
        self.may_ask = True
        self.deaf = False
        """Its streams are gone: proxies that are back do not know it."""
        self.is_open = True

    async def open(self) -> None:
        if not any(self.broker.answering):
            raise BrokerUnavailable("p:1", "refused")

    def endpoints(self) -> list[str]:
        return ["proxy"] * len(self.broker.answering)

    async def probe(self) -> int:
        """As long as the slowest of them takes."""
        if not all(self.broker.answering):
            await asyncio.sleep(SETTINGS.probe_timeout_s)
        return 0 if self.deaf else sum(self.broker.answering)

    async def close(self) -> None:
        self.is_open = False


class FakeBroker:
    """Two proxies, and what a name server knows."""

    def __init__(self) -> None:
        self.answering = [True, True]
        self.is_registered = True
        self.links: list[FakeLink] = []

    def make(self, _: Iterable[str]) -> Link:
        self.links.append(FakeLink(self))
        return cast(Link, self.links[-1])

    async def require(self) -> None:
        if not self.is_registered:
            raise BrokerUnavailable("n:1", "no broker is registered there")

    def fall(self) -> None:
        self.answering, self.is_registered = [False, False], False
        for link in self.links:
            link.deaf = True


@asynccontextmanager
async def kept(broker: FakeBroker) -> AsyncIterator[Session]:
    session = Session("s", broker.make, SETTINGS, broker.require)
    await session.open()
    keeper = asyncio.create_task(session.keep())
    try:
        yield session
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])
        await session.close()
    assert not any(link.is_open for link in broker.links), "each link is closed, whenever its keeper ended"
    assert keeper.cancelled()


def is_usable(session: Session) -> bool:
    try:
        return session.link is not None
    except BrokerUnavailable:
        return False


async def test_a_proxy_that_answers_before_its_broker_is_registered_is_not_used() -> None:
    broker = FakeBroker()
    async with kept(broker) as session:
        broker.fall()
        await until(lambda: _so(not is_usable(session)), "the link is not used any more")
        assert not broker.links[0].may_ask
        broker.answering = [True, True]
        broker.links[0].deaf = False
        made = len(broker.links)
        for _ in range(10):
            await asyncio.sleep(SETTINGS.probe_every_s)
            assert not is_usable(session)
        assert len(broker.links) == made, "and none is opened"
        broker.is_registered = True
        await until(lambda: _so(is_usable(session)), "it is used again")
        assert cast(FakeLink, session.link).may_ask


async def test_a_client_that_has_gone_deaf_is_replaced_once_proxies_answer() -> None:
    broker = FakeBroker()
    async with kept(broker) as session:
        broker.fall()
        await until(lambda: _so(not is_usable(session)), "the link is not used any more")
        broker.answering, broker.is_registered = [True, True], True
        await until(lambda: _so(is_usable(session)), "there is another")
        assert not broker.links[0].is_open
        assert session.link is cast(Link, broker.links[-1])


async def test_one_proxy_of_two_that_is_gone_for_good_makes_the_other_look_dead_at_no_moment() -> None:
    broker = FakeBroker()
    async with kept(broker) as session:
        broker.answering = [False, True]
        for _ in range(100):
            await asyncio.sleep(0.01)
            assert is_usable(session)
        assert len(broker.links) > 1, "others were tried"
        assert sum(link.is_open for link in broker.links) <= 2


@pytest.mark.parametrize("moment_s", [0.0, 0.12, 0.15, 0.2, 0.25])
async def test_a_session_that_is_closed_in_the_middle_of_a_replacement_leaves_no_link_open(moment_s: float) -> None:
    broker = FakeBroker()
    async with kept(broker):
        broker.answering = [False, True]
        await asyncio.sleep(moment_s)


async def _so(condition: bool) -> bool:
    return condition
