"""kill -9, or a long sleep, of processes of a fleet on the real servers, at each seam of the protocol: their twins
bring to an end what they had begun, and contradict nobody (I5, I7).

The keeper's sweep of decided batches is put off: the check-back and the messages alone must do it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

import httpx
import pytest

from service.bootstrap import Part
from service.core.leadership import LEASE_TTL_MS
from service.domain.reservation import Status
from tests.fixtures.processes import eventually
from tests.fixtures.shop import PRICE, Call, Shop, Witness, id_of
from tests.fixtures.stories import kill_at_seam, reach, reserve_again, settled_down
from tests.fixtures.victim import Fall, Seam
from tests.fixtures.whole_fleet import PartProcess, WholeFleet, another_leads

pytestmark = [pytest.mark.either_client, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(240)]

ASKED_WITHIN_S = 15.0
"""The broker asks 1 to 2 s after the half message; the rest is a busy machine's."""
LEADS_WITHIN_S = LEASE_TTL_MS / 1000 + 4.0
"""The lease of the dead leader, and the twin's next look at it."""


@pytest.fixture(scope="module")
def fleet_settings() -> dict[str, str]:
    return {"DROPGATE_SWEEP_AFTER_S": "600"}


def reserve_at(shop: Shop, sale: str, buyer: str, witness: Witness) -> None:
    witness.hear(shop.reserve(sale, buyer))


def cancel_at(shop: Shop, id_: str, witness: Witness) -> None:
    witness.hear(shop.cancel(id_))


def verdicts(answering: Sequence[PartProcess], verdict: str) -> int:
    return sum(len(process.logged("check_answered", verdict=verdict)) for process in answering)


def test_other_apis_answer_for_those_that_were_killed_in_the_middle_of_a_reserve(whole_fleet: WholeFleet) -> None:
    """F01, F06, F32. Nobody repeats a request, and each batch ends as it must; then the buyers come again."""
    fleet, witness = whole_fleet, Witness()
    seams = {Seam.HALF_SENT: "anna", Seam.DEDUCTED: "bert", Seam.ANSWERED: "carl"}
    victims = fleet.start_victims(Part.API, *seams)
    sale = fleet.start_sale(stock=5)
    others = fleet.twins[Part.API]
    before = verdicts(others, "rollback"), verdicts(others, "commit")

    for victim, buyer in zip(victims, seams.values(), strict=True):
        kill_at_seam(victim, partial(reserve_at, fleet.shop_at(victim), sale, buyer, witness))

    eventually(
        lambda: verdicts(others, "rollback") > before[0] and verdicts(others, "commit") > before[1] + 1,
        "the twins have answered: ROLLBACK where nothing was deducted, else COMMIT",
        ASKED_WITHIN_S,
    )
    for id_ in (id_of(sale, "bert"), id_of(sale, "carl")):
        eventually(partial(fleet.shop.shows, id_, Status.AWAITING_PAYMENT), f"the order of {id_} is there")
    assert fleet.shop.get(id_of(sale, "anna")).status_code == 404
    for buyer in seams.values():
        reserve_again(fleet.shops[1], witness, buyer, sale)
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    ledger = settled_down(fleet.shop, sale)
    assert (ledger["sql"]["awaiting_payment"], ledger["sql"]["available"]) == (3, 2)


def test_what_killed_order_consumers_held_is_finished_by_the_others(whole_fleet: WholeFleet) -> None:
    """F58. Received, committed, confirmed: whatever they had done with it, each message comes again and ends."""
    fleet, witness = whole_fleet, Witness()
    victims = fleet.start_victims(Part.ORDER, Seam.RECEIVED, Seam.ORDERED, Seam.CONFIRMED)
    sale = fleet.start_sale(stock=500)
    for victim in victims:
        victim.arm()
    fleet.sell_until(lambda: all(victim.is_at_seam() for victim in victims), sale, witness)
    for victim in victims:
        victim.kill()

    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    ledger = settled_down(fleet.shop, sale)
    assert ledger["sql"]["awaiting_payment"] == len(witness.told)
    assert not fleet.logged(Part.KEEPER, "orders_made", sale_id=sale), "it took no sweep"


def test_an_order_whose_consumer_was_killed_before_the_delay_message_expires_all_the_same(
    whole_fleet: WholeFleet,
) -> None:
    """F21 (c)."""
    fleet, witness = whole_fleet, Witness()
    (victim,) = fleet.start_victims(Part.ORDER, Seam.TIMEOUT_UNSENT)
    sale = fleet.start_sale(stock=500, payment_window_s=2)
    victim.arm()
    fleet.sell_until(victim.is_at_seam, sale, witness)
    victim.kill()

    reach(fleet.shop, witness, Status.CANCELLED)
    assert settled_down(fleet.shop, sale)["sql"]["available"] == 500


def test_what_killed_time_out_consumers_had_cancelled_is_given_back_once(whole_fleet: WholeFleet) -> None:
    """F20. No keeper runs while they die, which would be quicker than a message; the next one gives back."""
    fleet, witness = whole_fleet, Witness()
    victims = fleet.start_victims(Part.TIMEOUT, Seam.RELEASE_OWED, Seam.RELEASED)
    sale = fleet.start_sale(stock=500, payment_window_s=1)
    fleet.stop(Part.KEEPER)
    for victim in victims:
        victim.arm()
    fleet.sell_until(lambda: all(victim.is_at_seam() for victim in victims), sale, witness)
    for victim in victims:
        victim.kill()

    fleet.start()
    reach(fleet.shop, witness, Status.CANCELLED)
    ledger = settled_down(fleet.shop, sale)
    assert (ledger["sql"]["available"], ledger["segments"][0]["available"]) == (500, 500)


def test_a_cancel_whose_api_was_killed_gives_the_unit_back_once(whole_fleet: WholeFleet) -> None:
    """F20. Between SQL and Redis, and after both."""
    fleet, witness = whole_fleet, Witness()
    victims = fleet.start_victims(Part.API, Seam.RELEASE_OWED, Seam.RELEASED)
    sale = fleet.start_sale(stock=2)
    bought = [reserve_again(fleet.shop, witness, buyer, sale) for buyer in ("anna", "bert")]
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    for victim, id_ in zip(victims, bought, strict=True):
        kill_at_seam(victim, partial(cancel_at, fleet.shop_at(victim), id_, witness))

    reach(fleet.shop, witness, Status.CANCELLED)
    assert settled_down(fleet.shop, sale)["sql"]["available"] == 2
    late = fleet.shop.pay(bought[0], f"pay-{sale}", amount=PRICE)
    assert late.json() == {"applied": "refund_required"}
    for buyer in ("carl", "dora"):
        reserve_again(fleet.shop, witness, buyer, sale)
    eventually(lambda: fleet.shop.ledger(sale)["sql"]["awaiting_payment"] == 2, "both units sell again")
    assert settled_down(fleet.shop, sale)["sql"]["available"] == 0


# --- those of whom one leads ------------------------------------------------------------------------------------------


def test_events_that_a_killed_relay_had_sent_are_sent_again_by_the_other(whole_fleet: WholeFleet) -> None:
    """At least once, and each copy under the same id: a consumer can tell."""
    fleet, witness = whole_fleet, Witness()
    victim = fleet.start_leader(Part.EVENTS, Seam.EVENT_SENT)
    sale = fleet.start_sale(stock=5)
    victim.arm()
    anna = reserve_again(fleet.shop, witness, "anna", sale)
    victim.wait_at_seam()
    sent = [event["id"] for event in fleet.events(anna)]
    victim.kill()
    began_s = time.monotonic()

    bert = reserve_again(fleet.shop, witness, "bert", sale)
    another_leads(fleet, Part.EVENTS, LEADS_WITHIN_S)
    print(f"another relay leads {time.monotonic() - began_s:.1f} s after the kill")
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    eventually(lambda: len(fleet.events(anna)) > len(sent) and fleet.events(bert), "the other has sent them")
    assert {event["id"] for event in fleet.events(anna)} == set(sent)
    assert len(set(sent)) == 1


def test_a_load_whose_keeper_was_killed_is_done_anew_by_the_other(whole_fleet: WholeFleet) -> None:
    """Every attempt is a new epoch: the half-loaded slot of the first one is nobody's."""
    fleet, witness = whole_fleet, Witness()
    victim = fleet.start_leader(Part.KEEPER, Seam.LOADED)
    sale = "drop-loaded"
    fleet.shop.create_sale(sale, stock=2)
    victim.arm()
    opening = Call(lambda: open_sale(fleet.shop, sale))
    victim.wait_at_seam()
    victim.kill()
    began_s = time.monotonic()

    another_leads(fleet, Part.KEEPER, LEADS_WITHIN_S)
    print(f"another keeper leads {time.monotonic() - began_s:.1f} s after the kill")
    opening.response()
    eventually(lambda: open_sale(fleet.shop, sale).status_code == 200, "it is open")
    assert fleet.shop.sale(sale)["epoch"] > 2, "the first attempt was epoch 2"
    fleet.wait_until_known(sale)
    reserve_again(fleet.shop, witness, "anna", sale)
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    assert settled_down(fleet.shop, sale)["segments"][0]["granted"] == 2


def open_sale(shop: Shop, sale: str) -> httpx.Response:
    return shop.operate(f"/admin/v1/sales/{sale}/open", {"warm": True})


def test_an_expiry_whose_keeper_was_killed_is_finished_by_the_other(whole_fleet: WholeFleet) -> None:
    """F20: a leader's death is missed for the rest of its lease, and nothing is given back twice."""
    fleet, witness = whole_fleet, Witness()
    victim = fleet.start_leader(Part.KEEPER, Seam.RELEASED)
    sale = fleet.start_sale(stock=500, payment_window_s=1)
    victim.arm()
    fleet.sell_until(victim.is_at_seam, sale, witness)
    victim.kill()

    another_leads(fleet, Part.KEEPER, LEADS_WITHIN_S)
    reach(fleet.shop, witness, Status.CANCELLED)
    ledger = settled_down(fleet.shop, sale)
    assert (ledger["sql"]["available"], ledger["segments"][0]["available"]) == (500, 500)


# --- not dead, only asleep --------------------------------------------------------------------------------------------


def test_apis_that_wake_up_after_their_check_backs_change_nothing(whole_fleet: WholeFleet) -> None:
    """F01, F02, F16: one sleeps before its deduction, which was fenced meanwhile; one before its answer and COMMIT."""
    fleet, witness = whole_fleet, Witness()
    early, late = fleet.start_victims(Part.API, Seam.HALF_SENT, Seam.DEDUCTED)
    sale = fleet.start_sale(stock=3)
    before = verdicts(fleet.twins[Part.API], "rollback")
    anna = paused_in(early, lambda: fleet.shop_at(early).reserve(sale, "anna"))
    bert = paused_in(late, lambda: fleet.shop_at(late).reserve(sale, "bert"))
    eventually(
        lambda: verdicts(fleet.twins[Part.API], "rollback") > before, "a twin has answered ROLLBACK", ASKED_WITHIN_S
    )
    eventually(lambda: fleet.shop.shows(id_of(sale, "bert"), Status.AWAITING_PAYMENT), "his order is there")

    for sleeper in (early, late):
        sleeper.send(signal.SIGCONT)
    assert (anna.response().status_code, anna.response().json()["code"]) == (503, "outcome_unknown")
    assert bert.response().status_code in {202, 503}, bert.response().text
    ledger = settled_down(fleet.shop, sale)
    assert (ledger["sql"]["awaiting_payment"], ledger["segments"][0]["available"]) == (1, 2)
    reserve_again(fleet.shop_at(early), witness, "anna", sale)  # she wins in a new batch
    reserve_again(fleet.shop_at(late), witness, "bert", sale)
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    assert settled_down(fleet.shop, sale)["sql"]["awaiting_payment"] == 2


def paused_in(sleeper: PartProcess, call: Callable[[], httpx.Response]) -> Call:
    """Its last call is the one that waits."""

    def until_at_seam() -> httpx.Response:
        response = call()
        while not sleeper.is_at_seam():
            response = call()
        return response

    sleeper.arm(Fall.PAUSE)
    waiting = Call(until_at_seam)
    sleeper.wait_at_seam()
    return waiting


def test_order_consumers_that_wake_up_after_their_messages_came_again_make_no_second_order(
    whole_fleet: WholeFleet,
) -> None:
    """F58: one sleeps before its transaction, one before Redis and the broker hear of it."""
    fleet, witness = whole_fleet, Witness()
    sleepers = fleet.start_victims(Part.ORDER, Seam.RECEIVED, Seam.ORDERED)
    sale = fleet.start_sale(stock=500)
    for sleeper in sleepers:
        sleeper.arm(Fall.PAUSE)
    fleet.sell_until(lambda: all(sleeper.is_at_seam() for sleeper in sleepers), sale, witness)
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)

    for sleeper in sleepers:
        sleeper.send(signal.SIGCONT)
    reserve_again(fleet.shop, witness, "late", sale)
    reach(fleet.shop, witness, Status.AWAITING_PAYMENT)
    for sleeper in sleepers:
        sleeper.send(signal.SIGTERM)
        assert sleeper.wait() == 0, sleeper.log_end()
    assert settled_down(fleet.shop, sale)["sql"]["awaiting_payment"] == len(witness.told)
