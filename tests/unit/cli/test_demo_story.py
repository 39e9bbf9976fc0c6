"""The demo's story against a fake service: it tells what happened, and does not hide what went wrong."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from service.cli.demo import story as story_module
from service.cli.demo import tills as tills_module
from service.cli.demo.figures import Figures
from service.cli.demo.report import Report
from service.cli.demo.screen import Screen
from service.cli.demo.shop import shop, signature
from service.cli.demo.story import Cast, Story
from service.cli.dev import DevKeys, Key
from tests.unit.cli.fake_service import FakeService, serving

KEYS = DevKeys(
    storefront=Key("a", "storefront"), payments=Key("b", "payments"), operator=Key("c", "operator"), payment_secret="s"
)


@pytest.fixture(autouse=True)
def prompt_buyers(monkeypatch):
    monkeypatch.setattr(tills_module, "FIRST_LOOK_S", 0.02)


async def told(service: FakeService, *, buyers: int = 200) -> tuple[Report, str]:
    lines = io.StringIO()
    screen = Screen(Console(file=lines, width=120))
    async with serving(service) as url, shop(url, KEYS, Figures()) as open_shop:
        cast = Cast(buyers=buyers, stock=service.stock, seed=3)
        report = await Story(shop=open_shop, cast=cast, screen=screen, figures=open_shop.figures).tell()
    return report, lines.getvalue()


async def test_everything_is_sold_and_every_figure_fits():
    report, lines = await told(FakeService(stock=40))
    assert report.problems() == ()
    assert report.ok
    assert report.paid == report.books.paid == 40
    assert report.cancelled > 0
    assert report.expired > 0
    assert report.resold == report.cancelled + report.expired
    assert report.accepted == report.paid + report.cancelled + report.expired
    assert report.accepted + report.refused == report.buyers
    assert report.replayed > 0
    assert report.accept_p50_ms is not None
    assert "40 units, 200 buyers" in lines


async def test_more_units_than_buyers_leave_units_over():
    report, _ = await told(FakeService(stock=50), buyers=20)
    assert report.ok
    assert report.refused == 0
    assert report.books.available == 50 - report.paid


async def test_a_503_is_asked_again_with_the_same_key():
    report, _ = await told(FakeService(stock=10, hiccups=15), buyers=40)
    assert report.ok
    assert report.retries == {"503 outcome_unknown": 15}


async def test_a_promise_that_is_forgotten_fails_the_demo(monkeypatch):
    monkeypatch.setattr(tills_module, "PATIENCE_S", 0.3)
    monkeypatch.setattr(story_module, "QUIET_TIMEOUT_S", 0.3)
    report, _ = await told(FakeService(stock=10, forget=2), buyers=40)
    assert not report.ok
    assert any("never ended" in problem for problem in report.problems())


async def test_a_contradiction_fails_the_demo():
    report, _ = await told(FakeService(stock=10, contradict=3), buyers=40)
    assert report.contradictions[0].endswith("told cancelled, later awaiting_payment")
    assert not report.ok


@pytest.mark.parametrize(("at_s", "body"), [(1_700_000_000, b'{"a":1}')])
def test_payments_are_signed_as_the_api_wants(at_s, body):
    import hashlib
    import hmac

    expected = hmac.new(b"s", b"1700000000." + body, hashlib.sha256).hexdigest()
    assert signature("s", at_s, body) == f"t={at_s},v1={expected}"
