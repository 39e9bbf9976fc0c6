"""SIGSTOP in the middle of a reserve, while another process goes on; SIGCONT long after it was decided (F01, F02,
F16)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.domain.reservation import Status
from tests.fixtures.processes import DevProcess, Process, ServeProcess, eventually
from tests.fixtures.shop import Call, Shop, Witness, id_of
from tests.fixtures.victim import Fall, Seam

pytestmark = [pytest.mark.faults, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(120)]

SALE = "drop"

Make = Callable[..., Any]


class Pair:
    """`dev` has everything and goes on; `serve` answers HTTP beside it, and is paused at its seam."""

    def __init__(self, dev: DevProcess, serve: ServeProcess) -> None:
        self.dev = dev
        self.serve = serve
        self.shop: Shop = dev.start()
        self.shop.start_sale(SALE, stock=1)
        self.other: Shop = serve.start(dev.keys)

    def pause_in_the_middle_of(self, buyer: str) -> Call:
        self.serve.arm(Fall.PAUSE)
        call = Call(lambda: self.other.reserve(SALE, buyer))
        self.serve.wait_at_seam()
        return call

    def resume(self) -> None:
        self.serve.send(signal.SIGCONT)


@pytest.fixture
def make_pair(home: Path, make_dev: Make, care_for: Callable[[Process], Process]) -> Callable[[Seam], Pair]:
    def make(seam: Seam) -> Pair:
        trapped = ("tests.fixtures.victim", seam.value, str(home))
        serve = ServeProcess(home, "paused", *trapped, "serve", "--home", str(home), "--port", "0")
        care_for(serve)
        return Pair(make_dev(), serve)

    return make


def test_a_deduction_that_comes_after_its_check_back_changes_nothing(make_pair: Callable[[Seam], Pair]) -> None:
    """F01. The check-back found nothing, fenced the batch and answered ROLLBACK; then the sleeper wakes up."""
    pair, witness = make_pair(Seam.HALF_SENT), Witness()
    call = pair.pause_in_the_middle_of("anna")
    pair.dev.eventually(lambda: pair.dev.said('"verdict": "rollback"'), "the other process has answered ROLLBACK")
    ledger = pair.shop.ledger(SALE)
    assert ledger["segments"][0]["available"] == 1

    pair.resume()
    late = call.response()
    assert (late.status_code, late.json()["code"]) == (503, "outcome_unknown")
    ledger = pair.shop.ledger(SALE)
    assert (ledger["segments"][0]["available"], ledger["segments"][0]["buyers_units"]) == (1, 0)
    assert pair.shop.get(id_of(SALE, "anna")).status_code == 404

    again = witness.hear(pair.other.reserve(SALE, "anna"))
    assert again.status_code == 202, "the same key wins in a new batch"
    eventually(lambda: witness.all_are(pair.shop, Status.AWAITING_PAYMENT), "it has an order")
    eventually(lambda: pair.shop.is_settled_down(SALE), "quiet and balanced")


@pytest.mark.parametrize("seam", [Seam.DEDUCTED, Seam.ANSWERED])
def test_a_commit_that_comes_after_its_check_back_makes_no_second_order(
    seam: Seam, make_pair: Callable[[Seam], Pair]
) -> None:
    """F02, F16. The order is made without the sleeper, whose own answer and COMMIT come late."""
    pair, witness = make_pair(seam), Witness()
    call = pair.pause_in_the_middle_of("anna")
    eventually(lambda: pair.shop.status(id_of(SALE, "anna")) == Status.AWAITING_PAYMENT, "her order is there")

    pair.resume()
    late = call.response()
    assert late.status_code in {202, 503}, late.text
    eventually(lambda: pair.shop.is_settled_down(SALE), "quiet and balanced")
    assert pair.shop.ledger(SALE)["sql"]["awaiting_payment"] == 1
    again = witness.hear(pair.other.reserve(SALE, "anna"))
    assert (again.status_code, again.json()["status"]) == (200, "awaiting_payment")


def test_a_process_paused_through_a_loss_writes_nothing_into_the_new_epoch(make_pair: Callable[[Seam], Pair]) -> None:
    """It wakes up with a half message of an epoch that is over: its deduction finds no Redis that it knows."""
    pair, witness = make_pair(Seam.HALF_SENT), Witness()
    epoch = pair.shop.sale(SALE)["epoch"]
    call = pair.pause_in_the_middle_of("anna")
    os.kill(pair.dev.redis_pid(), signal.SIGKILL)
    pair.dev.eventually(
        lambda: pair.shop.sale(SALE)["epoch"] > epoch and pair.shop.sells_by_redis(SALE), "the sale is rebuilt"
    )

    pair.resume()
    assert call.response().status_code in {200, 202, 503}
    eventually(lambda: pair.shop.status(id_of(SALE, "anna")) == Status.AWAITING_PAYMENT, "the older message won")
    eventually(lambda: pair.shop.is_settled_down(SALE), "quiet and balanced")
    eventually(lambda: witness.hear(pair.shop.reserve(SALE, "anna")).status_code == 200, "the same key is a replay")
    assert witness.told == {id_of(SALE, "anna"): Status.AWAITING_PAYMENT}
    assert pair.shop.ledger(SALE)["segments"][0]["available"] == 0
