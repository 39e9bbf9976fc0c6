"""The load generator against a server that it can be held to."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.figures import Usage
from bench.load import hostile
from bench.load.crowd import Crowd
from bench.load.hostile import LARGE
from bench.load.requests import bytes_for
from bench.load.spec import LoadResult, LoadSpec, Pay
from bench.measures.desk import note_of
from bench.measures.stories import grown_mb, hostile_note, killed_note
from bench.stand.child import BenchFailed
from bench.stand.sale import audit_of
from tests.fixtures.stage_tools import until

SOLD_OUT = b'{"code":"sold_out"}'
GREETED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Shop:
    """Sells `stock` units; hears every request."""

    def __init__(self, stock: int, *, slow_s: float = 0.0) -> None:
        self.left = stock
        self.slow_s = slow_s
        self.buyers: Counter[str] = Counter()
        self.at_once = self.most_at_once = self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET "):
                    writer.write(GREETED)
                    continue
                length = next(
                    int(it.split(b":")[1]) for it in head.splitlines() if it.lower().startswith(b"content-length")
                )
                asked = json.loads(await reader.readexactly(length))
                self.buyers[asked.get("buyer_id") or asked["reservation_id"]] += 1
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                await self._dither(asked)
                self.at_once -= 1
                writer.write(self._answer())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.open -= 1

    async def _dither(self, asked: dict[str, str]) -> None:
        del asked
        await asyncio.sleep(self.slow_s)

    async def is_empty(self) -> bool:
        return self.open == 0

    def _answer(self) -> bytes:
        self.left -= 1
        if self.left >= 0:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{}"
        return b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%b" % (len(SOLD_OUT), SOLD_OUT)


@asynccontextmanager
async def serving(shop: Shop) -> AsyncIterator[int]:
    server = await asyncio.start_server(shop.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
        await until(shop.is_empty, "its clients have gone")
    finally:
        server.close()
        await server.wait_closed()


async def crowd(shop: Shop, **changes: object) -> LoadResult:
    async with serving(shop) as port:
        plain: dict[str, object] = {"clients": 4, "warm_s": 0.0, "seconds": 0.3, **changes}
        spec = LoadSpec(host="127.0.0.1", port=port, path="/r", bearer="dg_a_b", **plain)  # type: ignore[arg-type]
        return await Crowd(spec).run()


async def test_each_buyer_asks_once_and_whoever_is_told_yours_is_remembered() -> None:
    shop = Shop(7)
    result = await crowd(shop, buyers_max=50)
    assert result.answers == {"202": 7, "sold_out": 43}
    assert len(shop.buyers) == 50
    assert set(shop.buyers.values()) == {1}
    assert len(set(result.told)) == 7
    assert result.unheard == []
    assert set(result.latencies) == {"202", "sold_out"}


async def test_a_closed_loop_has_as_many_under_way_as_there_are_clients() -> None:
    shop = Shop(10_000, slow_s=0.01)
    result = await crowd(shop, clients=8)
    assert shop.most_at_once == 8
    assert sum(result.answers.values()) >= 8 * 2


async def test_a_slow_server_is_not_asked_less_often_by_a_clock_and_its_waits_count() -> None:
    """Coordinated omission: with one connection and 50 ms an answer, 100 requests a second must queue, and show it."""
    shop = Shop(10_000, slow_s=0.05)
    result = await crowd(shop, clients=1, per_s=100.0, seconds=1.0)
    assert result.latencies["202"].p99_ms > 200


async def test_a_server_that_stops_answering_is_seen_in_what_was_due_meanwhile() -> None:
    """The last second of two: what was due in it is asked and waited for, and its wait counts."""

    class Stalls(Shop):
        def _answer(self) -> bytes:
            self.slow_s = 0.5 if 20 < len(self.buyers) < 30 else 0.0
            return super()._answer()

    result = await crowd(Stalls(10_000), clients=1, per_s=100.0, seconds=0.5)
    assert result.answers == {"202": pytest.approx(50, abs=2)}
    assert result.latencies["202"].p99_ms > 400


async def test_a_server_that_goes_away_ends_the_crowd_and_its_buyers_are_unheard() -> None:
    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GREETED)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hangs_up, "127.0.0.1", 0)
    async with server, asyncio.timeout(5):
        port = server.sockets[0].getsockname()[1]
        spec = LoadSpec(host="127.0.0.1", port=port, path="/r", bearer="b", clients=3, warm_s=0.0, seconds=30.0)
        result = await Crowd(spec).run()
    assert sorted(result.unheard) == [0, 1, 2]
    assert result.told == []


# --- clients that wait ------------------------------------------------------------------------------------------------


class Unfair(Shop):
    """Answers `few` buyers at once, and each other one only when `let_go` is."""

    def __init__(self, few: int) -> None:
        super().__init__(10**9)
        self.few = few
        self.let_go = asyncio.Event()

    async def _dither(self, asked: dict[str, str]) -> None:
        await asyncio.sleep(0.005)
        if self.few <= int(asked["buyer_id"].rpartition("-")[2]) < CLIENTS:
            await self.let_go.wait()


CLIENTS, QUICK = 10, 4
"""The numbers of those who wait are those that they ask first with."""


async def unfair(*, warm_s: float, let_go_after_s: float) -> LoadResult:
    shop = Unfair(QUICK)
    asyncio.get_running_loop().call_later(let_go_after_s, shop.let_go.set)
    return await crowd(shop, clients=CLIENTS, warm_s=warm_s, seconds=0.5)


async def test_clients_that_no_answer_reaches_are_counted_and_their_wait_is_among_the_latencies() -> None:
    """They have asked in the warm-up, and are answered after the end."""
    result = await unfair(warm_s=0.2, let_go_after_s=1.0)
    assert result.starved == CLIENTS - QUICK
    assert result.under_way == pytest.approx(QUICK, rel=0.2)
    assert result.latencies["202"].p99_ms > 0
    assert result.latencies["202"].p999_ms > 700, "from when they asked to when they were answered"
    note = note_of(result)
    assert "6 of 10 clients had no answer in the measured time" in note
    assert "rate × mean wait is 4 requests under way, of 10 clients" in note


async def test_an_answer_that_counts_has_its_wait_though_it_was_asked_in_the_warm_up() -> None:
    result = await unfair(warm_s=0.4, let_go_after_s=0.6)
    assert result.starved == 0
    assert result.latencies["202"].p999_ms > 500


async def test_where_everyone_is_served_as_many_are_under_way_as_there_are_clients() -> None:
    result = await crowd(Shop(10**9, slow_s=0.01), clients=20, warm_s=0.1, seconds=1.0)
    assert result.starved == 0
    assert result.under_way == pytest.approx(20, rel=0.1)
    found = result.latencies["202"]
    assert found.mean_ms is not None
    assert result.answers["202"] / result.seconds * found.mean_ms / 1_000 == pytest.approx(20, rel=0.1)
    assert note_of(result) == ""


async def test_by_a_clock_nobody_starves_who_was_not_needed() -> None:
    result = await crowd(Shop(10**9), clients=50, warm_s=0.1, seconds=0.5, per_s=20.0)
    assert (result.starved, result.under_way) == (0, None)


async def test_by_a_clock_what_could_never_be_asked_has_its_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.load.crowd.ANSWER_S", 0.3)
    result = await crowd(Shop(10**9, slow_s=0.25), clients=1, per_s=40.0, seconds=0.5)
    assert result.answers["never_asked"] > 10
    assert result.latencies["never_asked"].p50_ms > 300
    assert sum(result.answers.values()) == pytest.approx(20, abs=2), "all that was due"


async def test_a_connection_that_waits_to_be_accepted_is_no_client_yet() -> None:
    """The kernel says that it is connected; the server has not looked yet."""
    shop, served = Shop(10**9), asyncio.Semaphore(0)

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await served.acquire()
        await shop.serve(reader, writer)

    server = await asyncio.start_server(late, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    for number in range(3):
        loop.call_later(0.2 * (number + 1), served.release)
    async with server:
        port = server.sockets[0].getsockname()[1]
        spec = LoadSpec(host="127.0.0.1", port=port, path="/r", bearer="b", clients=3, warm_s=0.0, seconds=0.3)
        result = await Crowd(spec).run()
    assert result.starved == 0
    assert result.latencies["202"].p999_ms < 100


async def test_a_server_that_hangs_up_before_its_first_answer_is_said_so() -> None:
    async def slams(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(slams, "127.0.0.1", 0)
    async with server, asyncio.timeout(5):
        port = server.sockets[0].getsockname()[1]
        spec = LoadSpec(host="127.0.0.1", port=port, path="/r", bearer="b", clients=1, warm_s=0.0, seconds=0.3)
        with pytest.raises(ConnectionError, match="hung up before the first answer"):
            await Crowd(spec).run()


# --- hostile requests -------------------------------------------------------------------------------------------------

BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"


class Wary(Shop):
    """Refuses what has no key, as all hostile requests; or, `deaf`, leaves it without an answer."""

    def __init__(self, *, deaf: bool = False) -> None:
        super().__init__(10**9)
        self.deaf = deaf
        self.most_open = 0
        self.strange: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.most_open = max(self.most_open, self.open + 1)
        await super().serve(_Sifted(self, reader, writer), writer)  # type: ignore[arg-type]  # it is read from alone


class _Sifted:
    def __init__(self, shop: Wary, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._shop, self._reader, self._writer = shop, reader, writer

    async def readuntil(self, end: bytes) -> bytes:
        head = await self._reader.readuntil(end)
        if b"Idempotency-Key" in head or head.startswith(b"GET /healthz"):
            return head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await self._reader.read(64)
        self._shop.strange[f"{length} bytes said, {'whole' if len(body) == length else 'not whole'}"] += 1
        if not self._shop.deaf:
            self._writer.write(BAD_REQUEST)
            await self._writer.drain()
        while self._shop.deaf and await self._reader.read(LARGE):
            pass
        raise ConnectionError("no client of ours")

    async def readexactly(self, count: int) -> bytes:
        return await self._reader.readexactly(count)


async def test_hostile_requests_come_by_a_clock_each_kind_as_often_as_the_others() -> None:
    shop = Wary()
    result = await crowd(shop, clients=2, seconds=1.0, hostile_per_s=100.0)
    assert set(result.hostile_acts) == {"malformed", "of 1 MiB", "slow", "half-closed"}
    assert list(result.hostile_acts.values()) == [pytest.approx(25, abs=3)] * 4
    assert set(shop.strange) == {
        "34 bytes said, whole",
        f"{LARGE} bytes said, not whole",
        "100 bytes said, not whole",
    }
    assert result.answers["202"] > 100


async def test_what_the_warm_up_sends_is_not_among_the_hostile_requests_that_are_counted() -> None:
    result = await crowd(Wary(), clients=1, warm_s=0.5, seconds=0.5, hostile_per_s=100.0)
    assert sum(result.hostile_acts.values()) == pytest.approx(50, abs=3)


async def test_hostile_connections_have_a_bound_and_what_it_leaves_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "OPEN_MAX", 8)
    monkeypatch.setattr(hostile, "ANSWER_S", 0.5)
    shop = Wary(deaf=True)
    result = await crowd(shop, clients=1, seconds=1.0, hostile_per_s=100.0)
    assert 1 < shop.most_open <= 1 + 8
    assert result.hostile_acts[hostile.LEFT_OUT] > 50
    assert sum(result.hostile_acts.values()) == pytest.approx(100, abs=3)


def test_a_measurement_with_too_few_hostile_requests_is_none() -> None:
    found = LoadResult(
        seconds=2.0,
        began_s=0.0,
        ended_s=2.0,
        answers={"202": 1_800},
        latencies={},
        told=[],
        unheard=[],
        hostile_acts={"malformed": 100, "slow": 100, hostile.LEFT_OUT: 1},
        cpu_s=0.1,
        clients=4,
    )
    assert hostile_note(found, 100.0) == "hostile: 100 malformed, 100 slow, 1 left out, 10.0% of all requests"
    with pytest.raises(BenchFailed, match="of 240 hostile requests only 200 could be sent"):
        hostile_note(found, 120.0)


# --- payments and audits ----------------------------------------------------------------------------------------------


def test_a_payment_is_of_the_reservation_that_the_buyer_has() -> None:
    pay = Pay(sale="bench-a", amount=4_900, currency="EUR", secret="s" * 32)
    spec = LoadSpec(host="h", port=1, path="/v1/payments", bearer="", clients=1, warm_s=0, seconds=1, pay=pay)
    head, _, body = bytes_for(spec).of(3).partition(b"\r\n\r\n")
    assert b"Dropgate-Signature: t=" in head
    assert json.loads(body)["reservation_id"].startswith("bench-a.")
    assert int(head.rpartition(b"Content-Length: ")[2]) == len(body)


LEDGER: dict[str, Any] = {
    "sql": {"awaiting_payment": 3, "paid": 0, "refunded_kept": 0, "under_review": 0, "payments_applied": 0},
    "segments": [{"queued": 0}],
    "problems": [],
    "quiet": True,
}


def test_an_audit_finds_what_was_oversold_lost_and_left_in_doubt() -> None:
    rows = {"a": "awaiting_payment", "b": "awaiting_payment", "c": "awaiting_payment", "d": "rejected"}
    clean = audit_of(3, LEDGER, rows, {"a", "b"})
    assert clean.clean
    assert audit_of(2, LEDGER, rows, {"a"}).oversold == 1
    assert audit_of(3, LEDGER, rows, {"a", "d", "e"}).lost == 2
    assert audit_of(3, {**LEDGER, "segments": [{"queued": 2}]}, rows, {"a"}).in_doubt == 2
    assert audit_of(3, {**LEDGER, "problems": ["no"]}, rows, {"a"}).in_doubt == 1


def paid(*, applied: int) -> dict[str, Any]:
    return {**LEDGER, "sql": {**LEDGER["sql"], "awaiting_payment": 1, "paid": 2, "payments_applied": applied}}


def test_a_payment_that_was_taken_and_has_no_paid_order_is_lost_once_however_it_went() -> None:
    rows = {"a": "paid", "b": "paid", "c": "awaiting_payment"}
    everyone = {"a", "b", "c"}
    assert audit_of(3, paid(applied=2), rows, everyone, {"a", "b"}).clean
    assert audit_of(3, paid(applied=2), rows, everyone, everyone).lost == 1
    assert audit_of(3, paid(applied=1), rows, everyone, {"a", "b"}).lost == 1
    assert audit_of(3, paid(applied=2), {**rows, "b": "cancelled"}, everyone, {"a", "b"}).lost == 1
    assert audit_of(3, paid(applied=3), {"a": "paid", "b": "paid"}, {"a", "b"}, everyone).lost == 1


def test_where_nobody_pays_in_time_cancelled_is_no_loss_and_what_still_waits_is_in_doubt() -> None:
    rows = {"a": "cancelled", "b": "cancelled"}
    assert audit_of(3, LEDGER, rows, {"a", "b"}).lost == 2
    assert audit_of(3, LEDGER, rows, {"a", "b"}, ends_unpaid=True).clean
    assert audit_of(3, LEDGER, {**rows, "b": "awaiting_payment"}, {"a", "b"}, ends_unpaid=True).in_doubt == 1
    assert audit_of(3, LEDGER, {"a": "cancelled", "c": "rejected"}, {"a", "b", "c"}, ends_unpaid=True).lost == 2


def test_a_part_that_is_killed_before_its_work_or_after_it_says_nothing() -> None:
    assert killed_note("order", 10, 20) == "10 of 20 done by then"
    for done in (0, 20, 21):
        with pytest.raises(BenchFailed, match=rf"had done {done} of 20 when it was killed"):
            killed_note("order", done, 20)


def test_a_soak_says_what_each_process_gained_and_one_that_is_new_gained_all_that_it_has() -> None:
    def usages(**mb: float) -> tuple[Usage, ...]:
        return tuple(Usage(process=name, cores=0.1, resident_mb=it) for name, it in mb.items())

    assert grown_mb(usages(api=100, order=90), usages(api=104, order=88, child=30)) == {
        "api": 4,
        "order": -2,
        "child": 30,
    }


async def test_whoever_pays_is_told_so_and_remembered() -> None:
    class Cashier(Shop):
        def _answer(self) -> bytes:
            self.left -= 1
            return b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % (b"200 OK" if self.left >= 0 else b"503 Busy")

    pay = Pay(sale="bench-a", amount=4_900, currency="EUR", secret="s" * 32)
    result = await crowd(Cashier(3), buyers_max=5, pay=pay)
    assert result.answers == {"200": 3, "503": 2}
    assert len(result.told) == 3
