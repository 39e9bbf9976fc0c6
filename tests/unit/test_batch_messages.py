"""What the order topic may carry: a body is a batch of ours, one of another release, or nothing (design §3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from service.domain.batch import BATCH_MAX, SCHEMA, decode_batch
from service.domain.errors import UndecodableMessage, UnknownSchema
from service.domain.ids import BuyerId, SaleId, reservation_id
from tests.fixtures.stock import batch, candidate, candidates, new_slot

SLOT = new_slot()
OTHER_SALE = reservation_id(SaleId("other"), BuyerId("anna"), "k")


def test_a_batch_comes_back_as_it_was_sent() -> None:
    sent = batch(SLOT, *candidates(SLOT, BATCH_MAX))
    assert decode_batch(msgspec.json.encode(sent)) == sent


def _first(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["candidates"][0].update(changes)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.update(sale_id="Sneaker 01"),
        lambda body: body.update(sale_id="sale-1}:{"),
        lambda body: body.update(sale_id=""),
        lambda body: body.update(batch_id=""),
        lambda body: body.update(batch_id="b" * 65),
        lambda body: body.update(batch_id="a b"),
        lambda body: body.update(segment=-1),
        lambda body: body.update(candidates=[]),
        lambda body: body.update(candidates=[msgspec.to_builtins(it) for it in candidates(SLOT, BATCH_MAX + 1)]),
        lambda body: body.update(candidates=[*body["candidates"]] * 2),
        _first(reservation_id="sneaker-01"),
        _first(reservation_id="sneaker-01.UPPER"),
        _first(reservation_id=OTHER_SALE),
        _first(quantity=0),
        _first(quantity=2**62),
        lambda body: body.update(epoch=-(2**40)),
        lambda body: body.update(epoch=2**40),
        lambda body: body.update(created_at_ms=2**62),
        lambda body: body.update(segment=2**40),
        lambda body: body.pop("epoch"),
    ],
)
def test_what_no_sender_of_ours_writes_is_malformed(spoil: Callable[[dict[str, Any]], None]) -> None:
    body = msgspec.to_builtins(batch(SLOT, candidate(SLOT)))
    spoil(body)
    with pytest.raises(UndecodableMessage) as raised:
        decode_batch(msgspec.json.encode(body))
    assert not isinstance(raised.value, UnknownSchema)


def test_another_schema_is_another_releases_whatever_else_is_in_it() -> None:
    with pytest.raises(UnknownSchema):
        decode_batch(msgspec.json.encode({"schema": SCHEMA + 1, "sale_id": 7}))


def test_a_body_too_deep_to_read_is_malformed_and_kills_nobody() -> None:
    with pytest.raises(UndecodableMessage):
        decode_batch(b'{"schema":1,"x":' + b"[" * 20_000)
