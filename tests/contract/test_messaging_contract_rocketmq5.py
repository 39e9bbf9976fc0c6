"""The same stories on a real RocketMQ 5.4.0, through its gRPC proxy; and the stories of this transport alone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from copy import copy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from service.adapters.rocketmq.grpc.settings import GrpcSettings
from service.adapters.rocketmq.grpc.transport import GrpcTransport
from service.domain.check_back import Verdict
from service.domain.errors import BrokerRefused, BrokerUnavailable
from service.ports.messaging import (
    Dead,
    RetryAfter,
    Topic,
    TopicType,
    TransactionalProducer,
    Transport,
)
from tests.contract.messaging import (
    DelayStories,
    DeliveryStories,
    FifoStories,
    HalfMessageStories,
    KillStories,
    TopicStories,
    now_ms,
)
from tests.contract.messaging_aside import AsideStories, discarded
from tests.contract.messaging_stage import (
    CheckBook,
    Stage,
    TransportFactory,
    TransportTraits,
    collect,
    eventually,
    keys,
    received,
)
from tests.fixtures.broker_way import bend
from tests.fixtures.proxy import TcpProxy
from tests.servers.rocketmq import BrokerOptions, RocketMQ

pytestmark = [pytest.mark.server, pytest.mark.rocketmq, pytest.mark.timeout(240)]

OPTIONS = BrokerOptions(
    transaction_timeout_ms=1_000,
    transaction_check_interval_ms=1_000,
    transaction_check_max=3,
    # It notes ends in bundles every 3 s, half of its own 6 s: with a shorter time-out it asks about what has ended.
    more={"transactionOpBatchInterval": "100"},
    # RocketMQ's own least invisible time is 10 s: every story of a message that comes again would take that long.
    more_proxy={"minInvisibleTimeMillsForRecv": 1_000},
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(certificate: Certificate) -> Iterator[RocketMQ]:
    """Its proxy takes TLS and plain connections on one port."""
    tls = {"tlsTestModeEnable": False, "tlsKeyPath": str(certificate.key), "tlsCertPath": str(certificate.path)}
    with ExitStack() as stack:
        broker = RocketMQ(replace(OPTIONS, more_proxy={**OPTIONS.more_proxy, **tls}))
        stack.callback(broker.stop)
        broker.start()
        yield broker


@dataclass(frozen=True, kw_only=True)
class Certificate:
    key: Path
    path: Path


def make_certificate(folder: Path) -> Certificate:
    """Of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dropgate tests")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
    ).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = Certificate(key=folder / "key.pem", path=folder / "certificate.pem")
    certificate.path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate.key.write_bytes(key.private_bytes(*encoding))
    return certificate


class RocketMQ5Factory:
    traits = TransportTraits(
        patience_s=30.0,
        first_check_s=OPTIONS.transaction_timeout_ms / 1000,
        check_max=OPTIONS.transaction_check_max,
        invisible_s=1.0,
        retry_s=1.0,
        delay_s=3.0,
        delay_tolerance_s=5.0,
    )

    def __init__(self, broker: RocketMQ, **more: Any) -> None:
        self._settings = replace(
            GrpcSettings(proxy=broker.proxy, name_servers=broker.name_server, prefix="contract", check_deadline_s=0.8),
            **more,
        )
        self.spec = json.dumps({"transport": "rocketmq5", "settings": asdict(self._settings)})
        self._opened: list[GrpcTransport] = []

    async def open(self) -> Transport:
        transport = GrpcTransport(self._settings)
        await transport.start()
        self._opened.append(transport)
        return transport

    async def close(self) -> None:
        await asyncio.gather(*(transport.close() for transport in self._opened))


class _RocketMQ5:
    @pytest.fixture
    async def transport_factory(self, broker: RocketMQ) -> AsyncIterator[TransportFactory]:
        factory = RocketMQ5Factory(broker)
        yield factory
        await factory.close()


class TestRocketMQ5HalfMessages(_RocketMQ5, HalfMessageStories): ...


class TestRocketMQ5Delivery(_RocketMQ5, DeliveryStories): ...


class TestRocketMQ5Fifo(_RocketMQ5, FifoStories): ...


class TestRocketMQ5Delay(_RocketMQ5, DelayStories): ...


class TestRocketMQ5Aside(_RocketMQ5, AsideStories): ...


class TestRocketMQ5Topics(_RocketMQ5, TopicStories):
    async def test_the_backlog_counts_halves_and_what_is_not_acknowledged(self, stage: Stage) -> None:
        """The same numbers, a little later."""
        producer, consumer = await stage.producer(), await stage.consumer(stage.order)
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        await stage.transact(producer, "sold", Verdict.COMMIT)
        await stage.until_backlog(halves=1, undelivered=1)
        await collect(consumer, 1, stage.traits.patience_s)
        await stage.until_backlog(halves=1, undelivered=0)
        await stage.until_backlog(halves=0, undelivered=0)


class TestRocketMQ5Killed(_RocketMQ5, KillStories): ...


# --- this transport alone ---------------------------------------------------------------------------------------------

RESUMED_WITHIN_S = 20.0
"""Of the broker's readiness, or of the end of a black hole."""


@pytest.fixture
async def factory(broker: RocketMQ) -> AsyncIterator[RocketMQ5Factory]:
    factory = RocketMQ5Factory(broker)
    yield factory
    await factory.close()


async def stage_of(factory: RocketMQ5Factory) -> Stage:
    stage = Stage(factory, await factory.open())
    await stage.set_up()
    return stage


async def published(stage: Stage, key: str) -> None:
    async with asyncio.timeout(RESUMED_WITHIN_S):
        while True:
            with suppress(BrokerUnavailable):
                return await stage.publish(stage.normal, key)
            await asyncio.sleep(0.2)


async def asked_about(stage: Stage, producer: TransactionalProducer, checks: CheckBook, key: str) -> None:
    """A half message in doubt, and its check-back; a send that fails is tried again."""
    async with asyncio.timeout(RESUMED_WITHIN_S):
        while True:
            with suppress(BrokerUnavailable):
                await stage.transact(producer, key, Verdict.UNKNOWN)
                break
            await asyncio.sleep(0.2)
    await eventually(lambda: key in checks.asked_keys(), RESUMED_WITHIN_S)


async def test_a_hundred_questions_are_answered_while_one_answer_hangs(factory: RocketMQ5Factory) -> None:
    """F10: the client would ask them one after the other."""

    async def hang() -> Verdict:
        await asyncio.Event().wait()
        return Verdict.COMMIT

    stage, others = await stage_of(factory), [f"doubt-{n}" for n in range(99)]
    checks = CheckBook({"hangs": hang, **dict.fromkeys(others, Verdict.COMMIT)})
    producer, consumer = await stage.producer(checks), await stage.consumer(stage.order)
    for key in ("hangs", *others):
        await stage.transact(producer, key, Verdict.UNKNOWN)
    seen: set[str] = set()
    async with asyncio.timeout(stage.traits.patience_s):
        while len(seen) < len(others):  # a busy machine may answer after the next question: then it comes twice
            seen.add(await received(consumer, stage.traits.patience_s))
    assert seen == set(others)


async def test_closing_waits_for_a_commit_that_is_under_way(factory: RocketMQ5Factory) -> None:
    """F50: a stop does not turn a sold reservation into a question."""
    stage = await stage_of(factory)
    checks, may_end = CheckBook(), asyncio.Event()
    leaving = await factory.open()
    producer = await stage.producer(checks, on=leaving)
    begun = asyncio.Event()

    async def decide() -> Verdict:
        begun.set()
        await may_end.wait()
        return Verdict.COMMIT

    selling = asyncio.create_task(producer.transact(stage.message("sold"), decide))
    await begun.wait()
    closing = asyncio.create_task(leaving.close())
    await asyncio.sleep(0.3)
    may_end.set()
    assert await selling is Verdict.COMMIT
    await closing
    assert keys(await collect(await stage.consumer(stage.order), 1, stage.traits.patience_s)) == ["sold"]
    assert checks.asked == []


async def test_what_is_dealt_with_out_of_turn_is_not_listed_and_what_is_not_stays_over_a_restart(
    factory: RocketMQ5Factory,
) -> None:
    stage = await stage_of(factory)
    producer = await stage.producer()
    for key in ("first", "second", "third"):
        await stage.transact(producer, key, Verdict.UNKNOWN)

    async def listed(transport: Transport) -> list[str]:
        return [half.key for half in await stage.discarded(on=transport)]

    async def all_are_listed() -> bool:
        return sorted(await listed(stage.transport)) == ["first", "second", "third"]

    await eventually(all_are_listed, stage.traits.patience_s)
    for half in await stage.transport.discarded(1000):
        if half.topic != stage.order.name or half.key == "second":
            await stage.transport.forget_discarded(half.message_id)  # also what other stories left behind
            assert half.checks == stage.traits.check_max
    assert sorted(await listed(stage.transport)) == ["first", "third"]
    for half in await stage.transport.discarded(1000):
        await stage.transport.forget_discarded(half.message_id)
    assert await listed(stage.transport) == []
    assert await listed(await factory.open()) == []


async def test_half_messages_of_others_are_neither_listed_nor_resumed_nor_forgotten(
    broker: RocketMQ, factory: RocketMQ5Factory
) -> None:
    """All of a cluster's lie in one topic."""
    stage, strangers = await stage_of(factory), RocketMQ5Factory(broker, prefix="strangers")
    checks = CheckBook()
    await stage.transact(await stage.producer(checks), "ours", Verdict.UNKNOWN)
    half, stranger = await discarded(stage, checks), await strangers.open()
    assert await stranger.discarded(1000) == []
    with pytest.raises(BrokerRefused):
        await stranger.resume_discarded(half.message_id)
    await stranger.forget_discarded(half.message_id)
    assert await stage.discarded() == [half]
    await stage.transport.forget_discarded(half.message_id)
    await strangers.close()


@pytest.mark.parametrize("type_", TopicType)
async def test_a_dead_letter_says_where_it_was_sent_to_whichever_way_it_died(
    broker: RocketMQ, type_: TopicType
) -> None:
    """The broker says where it was taken from, and that is not always the topic."""
    factory = RocketMQ5Factory(broker, namespace="shop")
    stage = await stage_of(factory)
    topic = stage.topic(type_, max_attempts=2)
    await stage.transport.create_topics([topic])
    consumer = await stage.consumer(topic)
    for key, last in (("ours", Dead(why="poison")), ("theirs", RetryAfter(delay_s=1.0, why="broken"))):
        await sent(stage, topic, key)
        for outcome in (RetryAfter(delay_s=1.0, why="broken"), last):
            (delivery,) = await collect(consumer, 1, stage.traits.patience_s, done=False)
            await consumer.settle(delivery, outcome)

        async def is_dead(key: str = key) -> bool:
            assert await consumer.receive(1, 0.01) == []
            return key in [letter.key for letter in await stage.dead_letters(topic)]

        await eventually(is_dead, stage.traits.patience_s)
    attempts = 1 if type_ is TopicType.FIFO else 2  # of a FIFO topic the broker keeps no count
    assert [(it.key, it.topic, it.group, it.attempts) for it in await stage.dead_letters(topic)] == [
        (key, topic.name, topic.group, attempts) for key in ("ours", "theirs")
    ]
    await factory.close()


async def sent(stage: Stage, topic: Topic, key: str) -> None:
    match topic.type:
        case TopicType.TRANSACTION:
            await stage.transact(await stage.producer(), key, Verdict.COMMIT)
        case TopicType.FIFO:
            await stage.publish(topic, key, fifo_group="one")
        case TopicType.DELAY:
            await stage.publish(topic, key, deliver_at_ms=now_ms())
        case TopicType.NORMAL:
            await stage.publish(topic, key)


async def test_a_message_goes_through_tls_to_a_proxy_that_we_trust(
    broker: RocketMQ, certificate: Certificate, factory: RocketMQ5Factory
) -> None:
    """In a process of its own: gRPC reads what it trusts once."""
    stage = await stage_of(factory)
    encrypted = RocketMQ5Factory(broker, tls=True, tls_ca=str(certificate.path))
    await replace_factory(stage, encrypted).run_victim("after_commit", stage.order, "sold")
    assert keys(await collect(await stage.consumer(stage.order), 1, stage.traits.patience_s)) == ["sold"]
    distrusting = await RocketMQ5Factory(broker, tls=True, start_timeout_s=2.0).open()
    with pytest.raises(BrokerUnavailable):
        await distrusting.producer(stage.order.name, CheckBook())
    await distrusting.close()
    await encrypted.close()


def replace_factory(stage: Stage, factory: RocketMQ5Factory) -> Stage:
    """The same topics, seen by another factory."""
    other = copy(stage)
    other.factory = factory
    return other


async def test_topics_of_a_namespace_are_apart(broker: RocketMQ, factory: RocketMQ5Factory) -> None:
    other = RocketMQ5Factory(broker, namespace="shop")
    try:
        stage = await stage_of(other)
        assert await stage.transport.missing([stage.order]) == []
        (sentence,) = await (await factory.open()).missing([stage.order])
        assert "is missing" in sentence
        checks = CheckBook({"doubt": Verdict.COMMIT})
        producer, consumer = await stage.producer(checks), await stage.consumer(stage.order)
        await stage.transact(producer, "sold", Verdict.COMMIT)
        await stage.transact(producer, "doubt", Verdict.UNKNOWN)
        found = await collect(consumer, 2, stage.traits.patience_s)
        assert sorted((it.key, it.topic) for it in found) == [("doubt", stage.order.name), ("sold", stage.order.name)]
        assert checks.asked[0].topic == stage.order.name
    finally:
        await other.close()


@pytest.mark.faults
async def test_a_silent_proxy_ends_a_start_by_our_deadline(
    broker: RocketMQ, make_proxy: Callable[[str], TcpProxy]
) -> None:
    """F45: it accepts the connection, and that is all."""
    proxy = make_proxy(broker.proxy)
    proxy.swallow()
    factory = RocketMQ5Factory(broker, proxy=proxy.address, start_timeout_s=2.0)
    transport = await factory.open()
    for ask in (
        lambda: transport.producer("contract-any", CheckBook()),
        lambda: transport.consumer("contract-any", "any", invisible_s=60),
    ):
        began = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="no connection within 2 s"):
            await ask()
        assert time.monotonic() - began < 4
    await factory.close()


@pytest.mark.faults
async def test_a_black_hole_that_heals_is_left_behind_with_nobodys_help(
    broker: RocketMQ, make_proxy: Callable[[str], TcpProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F47: the client would keep a connection that is dead without saying so."""
    proxy = make_proxy(broker.proxy)
    bend(proxy, monkeypatch)
    factory = RocketMQ5Factory(broker, proxy=proxy.address)
    stage, checks = await stage_of(factory), CheckBook()
    producer, consumer = await stage.producer(checks), await stage.consumer(stage.order)
    await stage.transact(producer, "before", Verdict.COMMIT)
    await stage.publish(stage.normal, "before")
    assert await received(consumer, stage.traits.patience_s) == "before"
    proxy.swallow()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        await stage.transact(producer, "lost", Verdict.COMMIT)
    assert time.monotonic() - began < 5
    with pytest.raises(BrokerUnavailable):
        await stage.publish(stage.normal, "lost")
    await asyncio.sleep(5)
    proxy.heal()
    healed = time.monotonic()
    await asked_about(stage, producer, checks, "doubt")
    print(f"check-backs after {time.monotonic() - healed:.1f} s")
    await stage.transact(producer, "after", Verdict.COMMIT)
    assert await received(consumer, RESUMED_WITHIN_S) == "after"
    print(f"receives after {time.monotonic() - healed:.1f} s")
    await published(stage, "after")
    print(f"publishes after {time.monotonic() - healed:.1f} s")
    assert time.monotonic() - healed < RESUMED_WITHIN_S
    await factory.close()


@pytest.mark.faults
async def test_a_broker_that_restarts_is_used_again_with_nobodys_help(
    broker: RocketMQ, factory: RocketMQ5Factory
) -> None:
    """F07: the proxy has lost everybody's settings; the client would send them again after five minutes."""
    stage, checks = await stage_of(factory), CheckBook()
    producer, consumer = await stage.producer(checks), await stage.consumer(stage.order)
    await stage.transact(producer, "before", Verdict.COMMIT)
    assert await received(consumer, stage.traits.patience_s) == "before"
    await stage.transact(producer, "survives", Verdict.COMMIT)
    broker.broker_process.kill()
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        await stage.transact(producer, "lost", Verdict.COMMIT)
    assert time.monotonic() - began < 5
    with pytest.raises(BrokerUnavailable, match="cannot be asked"):
        await stage.transport.missing([stage.order])
    await asyncio.to_thread(broker.start_broker)
    ready = time.monotonic()
    found = await received(consumer, RESUMED_WITHIN_S)
    if found == "before":  # a killed broker forgets what was acknowledged in its last seconds
        found = await received(consumer, RESUMED_WITHIN_S)
    assert found == "survives"
    print(f"receives after {time.monotonic() - ready:.1f} s")
    await asked_about(stage, producer, checks, "doubt")
    print(f"check-backs after {time.monotonic() - ready:.1f} s")
    assert time.monotonic() - ready < RESUMED_WITHIN_S
    assert await stage.transport.missing([stage.order]) == []
