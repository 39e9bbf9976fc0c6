"""From the scripts' named replies to the domain's values, and from those to what the scripts take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from service.adapters.redis.scripts import Reply
from service.domain.batch import SCHEMA, BatchMessage, Candidate, decode_batch
from service.domain.errors import StockUnavailable, UndecodableMessage
from service.domain.ids import BatchId, BuyerId, ReservationId
from service.domain.sale import ServerIds
from service.domain.stock import (
    Effect,
    Known,
    LoadRefused,
    Lost,
    No,
    PeekAnswer,
    Record,
    RecordState,
    Refusal,
    ReserveAnswer,
    Slot,
    StoredBatch,
    Undecided,
    Won,
)

_LETTERS = {RecordState.QUEUED: "q", RecordState.ORDERED: "o", RecordState.ENDED: "e"}
_STATES = {letter: state for state, letter in _LETTERS.items()}

_Record = tuple[str, int, int, str, str, str]
_unpack = msgspec.msgpack.Decoder(_Record).decode
pack = msgspec.msgpack.encode


class UnexpectedReply(StockUnavailable):
    """A slot says what no script of this release writes: damaged by a hand, or of another release."""

    def __init__(self, why: str) -> None:
        super().__init__("redis", why)


def text(value: object) -> str:
    if not isinstance(value, bytes):
        raise UnexpectedReply(f"bytes expected, not {value!r}")
    return value.decode()


def data(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise UnexpectedReply(f"bytes expected, not {value!r}")
    return value


def number(value: object) -> int:
    if not isinstance(value, int):
        raise UnexpectedReply(f"a number expected, not {value!r}")
    return value


def local(id_: ReservationId) -> str:
    """A slot stores ids without their sale: the key names it."""
    return id_.partition(".")[2]


def full(slot: Slot, local_id: str) -> ReservationId:
    return ReservationId(f"{slot.sale_id}.{local_id}")


def lost_of(reply: Reply) -> Lost | None:
    """Whether the script replied 'lost'."""
    return Lost(found=_ids(reply)) if reply[0] == b"lost" else None


def refused_of(reply: Reply) -> LoadRefused | None:
    return LoadRefused(found=_ids(reply), stamped=bool(number(reply[3]))) if reply[0] == b"refused" else None


def _ids(reply: Reply) -> ServerIds:
    return ServerIds(run_id=text(reply[1]), replid=text(reply[2]))


def pack_candidates(candidates: Iterable[Candidate]) -> bytes:
    """What peek and reserve take. A quantity below 1 would put stock on sale: refused here, whoever let it in."""
    rows = [(local(it.reservation_id), it.buyer_id, it.quantity, it.fingerprint) for it in candidates]
    if any(quantity < 1 for _, _, quantity, _ in rows):
        raise ValueError("a candidate asks for less than one unit")
    return pack(rows)


def pack_effects(effects: Mapping[ReservationId, Effect]) -> bytes:
    return pack([(local(id_), effect.value) for id_, effect in effects.items()])


def parts_of(record: Record) -> _Record:
    """In the order of include/records.lua, which packs them: its MessagePack has no type for bytes within bytes."""
    return (
        _LETTERS[record.state],
        record.quantity,
        record.created_at_ms,
        record.batch_id,
        record.fingerprint,
        record.buyer_id,
    )


def record_of(id_: ReservationId, packed: object) -> Record:
    try:
        state, quantity, created_at_ms, batch_id, fingerprint, buyer_id = _unpack(data(packed))
    except msgspec.MsgspecError as error:
        raise UnexpectedReply(f"a record that cannot be read: {error}") from error
    return Record(
        reservation_id=id_,
        state=_STATES[state],
        batch_id=BatchId(batch_id),
        buyer_id=BuyerId(buyer_id),
        quantity=quantity,
        fingerprint=fingerprint,
        created_at_ms=created_at_ms,
    )


def triples(slot: Slot, items: Sequence[object]) -> Iterator[tuple[str, Record | None]]:
    """The answers of peek and reserve: a word, and a record or None (see include/refusals.lua)."""
    for at in range(0, len(items), 3):
        found = record_of(full(slot, text(items[at + 1])), items[at + 2]) if items[at + 2] else None
        yield text(items[at]), found


def _answer(word: str, found: Record | None, units_held: bool) -> Known | Refusal:
    if word == "known" and found is not None:
        return Known(record=found)
    return Refusal(no=No(word), live=found, units_held=units_held)


def peek_answers(slot: Slot, ids: Sequence[ReservationId], reply: Reply) -> dict[ReservationId, PeekAnswer]:
    units_held = number(reply[1]) > 0
    pairs = zip(ids, triples(slot, reply[2:]), strict=True)
    return {
        id_: Undecided() if word == "undecided" else _answer(word, found, units_held) for id_, (word, found) in pairs
    }


def reserve_answers(slot: Slot, ids: Sequence[ReservationId], reply: Reply) -> dict[ReservationId, ReserveAnswer]:
    units_held = number(reply[2]) > 0
    pairs = zip(ids, triples(slot, reply[3:]), strict=True)
    return {id_: Won() if word == "won" else _answer(word, found, units_held) for id_, (word, found) in pairs}


def stored_batch(slot: Slot, entry: object) -> tuple[BatchId, StoredBatch | None]:
    """By its id; None: its body is of a schema that this release cannot read."""
    if not isinstance(entry, list):
        raise UnexpectedReply(f"a batch expected, not {entry!r}")
    packed_id, decided_at_ms, bodies, *winners = entry
    batch_id = BatchId(text(packed_id))
    try:
        message = _message(slot, batch_id, number(decided_at_ms), data(bodies))
    except UndecodableMessage:
        return batch_id, None
    ids = [full(slot, text(local_id)) for local_id in winners[::2]]
    records = {id_: record_of(id_, packed) for id_, packed in zip(ids, winners[1::2], strict=True)}
    return batch_id, StoredBatch(message=message, winners=records)


def _message(slot: Slot, batch_id: BatchId, decided_at_ms: int, bodies: bytes) -> BatchMessage:
    """The body; of a batch decided in parts, the first with the candidates of all; without one, no candidates."""
    parts = [decode_batch(body) for body in bodies.splitlines()]
    if not parts:
        return BatchMessage(
            schema=SCHEMA,
            batch_id=batch_id,
            sale_id=slot.sale_id,
            segment=slot.segment,
            epoch=slot.epoch,
            created_at_ms=decided_at_ms,
            candidates=(),
        )
    if len(parts) == 1:
        return parts[0]
    candidates = {it.reservation_id: it for part in parts for it in part.candidates}
    return msgspec.structs.replace(parts[0], candidates=tuple(candidates.values()))
