"""POST /v1/payments: only what the payment side signed is read, and nothing before that."""

from __future__ import annotations

import hashlib
import hmac
import json

import httpx
import pytest

from service.domain.errors import OutcomeUnknown
from service.domain.ids import PaymentId
from service.domain.payment import Payment, PaymentOutcome, PaymentStatus
from tests.unit.api.fakes import ANNAS, NOW_MS, PAYMENT_SECRETS, World, key

NOW_S = NOW_MS // 1000
NEWER, OLDER = PAYMENT_SECRETS
REPORT = {
    "payment_id": "pay_1",
    "reservation_id": ANNAS,
    "status": "succeeded",
    "amount": 4900,
    "currency": "EUR",
}
RAW = json.dumps(REPORT).encode()


def v1(raw: bytes = RAW, secret: bytes = NEWER, at_s: int = NOW_S) -> str:
    return hmac.new(secret, b"%d." % at_s + raw, hashlib.sha256).hexdigest()


def signed(raw: bytes = RAW, secret: bytes = NEWER, at_s: int = NOW_S) -> str:
    return f"t={at_s},v1={v1(raw, secret, at_s)}"


async def report(
    client: httpx.AsyncClient, signature: str | None, raw: bytes = RAW, headers: dict[str, str] | None = None
) -> httpx.Response:
    headers = {"Content-Type": "application/json", **(headers or {})}
    if signature is not None:
        headers["Dropgate-Signature"] = signature
    return await client.post("/v1/payments", content=raw, headers=headers)


@pytest.mark.parametrize("outcome", PaymentOutcome)
async def test_a_signed_report_is_stored_and_told_what_became_of_it(
    world: World, client: httpx.AsyncClient, outcome: PaymentOutcome
) -> None:
    world.payments.outcome = outcome
    answer = await report(client, signed())
    assert (answer.status_code, answer.json()) == (200, {"applied": outcome})
    expected = Payment(
        id=PaymentId("pay_1"), reservation_id=ANNAS, status=PaymentStatus.SUCCEEDED, amount=4900, currency="EUR"
    )
    assert world.payments.calls == [(expected,)]


@pytest.mark.parametrize("secret", PAYMENT_SECRETS)
async def test_while_secrets_rotate_each_of_them_signs(client: httpx.AsyncClient, secret: bytes) -> None:
    assert (await report(client, signed(secret=secret))).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        f"t={NOW_S},v1={'0' * 64},v1={v1()}",
        f"t={NOW_S},v1={v1()},v1={'0' * 64}",
        f"t={NOW_S}, v1={v1()}",
        f"v0=old,t={NOW_S},v1={v1()},v2=new",
    ],
)
async def test_one_signature_of_several_is_enough(client: httpx.AsyncClient, header: str) -> None:
    assert (await report(client, header)).status_code == 200


@pytest.mark.parametrize("away_s", [-300, -299, 299, 300])
async def test_a_clock_may_be_five_minutes_off(world: World, client: httpx.AsyncClient, away_s: int) -> None:
    world.clock.ms = NOW_S * 1000
    assert (await report(client, signed(at_s=NOW_S + away_s))).status_code == 200


UNSIGNED = {
    "no signature": None,
    "an empty one": "",
    "no time": f"v1={v1()}",
    "two times": f"t={NOW_S},t={NOW_S},v1={v1()}",
    "a time that is a word": f"t=now,v1={v1()}",
    "a negative time": f"t=-5,v1={v1(at_s=-5)}",
    "a time in other digits": f"t={chr(0x661)},v1={v1()}".encode().decode("latin-1"),
    "a time of 5000 digits": f"t={'9' * 5000},v1={v1()}",
    "only a time": f"t={NOW_S}",
    "an empty v1": f"t={NOW_S},v1=",
    "half a v1": f"t={NOW_S},v1={v1()[:32]}",
    "a v1 in capitals": f"t={NOW_S},v1={v1().upper()}",
    "a v1 beyond ASCII": f"t={NOW_S},v1=\xe9",
    "another secret's": signed(secret=b"nobody's secret"),
    "an empty secret's": signed(secret=b""),
    "another body's": signed(raw=RAW + b" "),
    "another time's": f"t={NOW_S + 1},v1={v1()}",
    "under another name": f"t={NOW_S},v0={v1()}",
    "one from before the tolerance": signed(at_s=NOW_S - 301),
    "one from after the tolerance": signed(at_s=NOW_S + 302),
}


@pytest.mark.parametrize("case", UNSIGNED)
async def test_what_is_not_signed_is_not_read(world: World, client: httpx.AsyncClient, case: str) -> None:
    headers = [("Content-Type", b"application/json")]
    if (signature := UNSIGNED[case]) is not None:
        headers.append(("Dropgate-Signature", signature.encode("latin-1")))
    answer = await client.post("/v1/payments", content=RAW, headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid_signature")
    assert world.asked() == []


async def test_the_signature_is_looked_at_before_the_body(world: World, client: httpx.AsyncClient) -> None:
    nonsense = b"{this is no JSON"
    assert (await report(client, signed(), raw=nonsense)).status_code == 401
    assert (await report(client, signed(raw=nonsense), raw=nonsense)).status_code == 400
    assert (await report(client, "t=1,v1=2", raw=b"x", headers={"Content-Type": "text/plain"})).status_code == 401
    assert world.asked() == []


@pytest.mark.parametrize("role", ["payments", "operator"])
async def test_no_key_stands_in_for_a_signature(world: World, client: httpx.AsyncClient, role: str) -> None:
    assert (await report(client, None, headers=key(role))).status_code == 401
    assert world.asked() == []


async def test_a_key_beside_a_signature_does_no_harm(client: httpx.AsyncClient) -> None:
    assert (await report(client, signed(), headers=key("payments"))).status_code == 200
    assert (await report(client, signed(), headers={"Authorization": "Bearer whatever"})).status_code == 200


async def test_without_secrets_no_report_is_taken(world: World) -> None:
    world.payment_secrets = ()
    async with world.client() as client:
        assert (await report(client, signed())).status_code == 401


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("payment_id", ""),
        ("payment_id", "p" * 129),
        ("payment_id", "p\n1"),
        ("reservation_id", ANNAS + "\n"),
        ("status", "pending"),
        ("amount", -1),
        ("amount", 49.0),
        ("amount", True),
        ("amount", 10**30),
        ("currency", "eur"),
        ("currency", "EURO"),
        ("currency", "EU\n"),
        ("fee", 3),
    ],
)
async def test_a_signed_mistake_is_named(world: World, client: httpx.AsyncClient, field: str, value: object) -> None:
    raw = json.dumps({**REPORT, field: value}).encode()
    answer = await report(client, signed(raw), raw)
    assert (answer.status_code, answer.json()["code"], answer.json()["param"]) == (422, "invalid_request", field)
    assert world.asked() == []


async def test_a_report_that_may_not_have_been_stored_is_to_be_sent_again(
    world: World, client: httpx.AsyncClient
) -> None:
    world.payments.error = OutcomeUnknown(ANNAS)
    answer = await report(client, signed())
    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
    assert answer.headers["Retry-After"]
