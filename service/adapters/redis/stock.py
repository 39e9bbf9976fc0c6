"""Stock in Redis: one method of ports.stock.Stock, one script of scripts/lua."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from service.adapters.redis import info, replies
from service.adapters.redis.client import RedisClient
from service.adapters.redis.health import advice_of, problems_of
from service.adapters.redis.keys import DATA, META, key, keys
from service.adapters.redis.replies import lost_of, number
from service.adapters.redis.scripts import Argument, Reply, Script, load_scripts
from service.domain.batch import BatchMessage, Candidate, encode
from service.domain.errors import StockUnavailable
from service.domain.ids import BatchId, BuyerId, ReservationId
from service.domain.sale import ServerIds
from service.domain.stock import (
    Adjusted,
    Applied,
    Batches,
    BatchRecord,
    Effect,
    Fenced,
    FenceWritten,
    LateRules,
    Loaded,
    LoadRefused,
    Lost,
    Peeked,
    Record,
    Reserved,
    Slot,
    SlotCount,
    StoredBatch,
    TooFewLeft,
)
from service.ports.clock import Clock

EFFECTS_MAX = 128
FIND_MAX = 500
BATCHES_MAX = 32
LOAD_MAX = 500
"""Items a call, so that no script holds the slot for more than about a millisecond; more take several calls."""

_T = TypeVar("_T")


class RedisStock:
    """Fulfils ports.stock.Stock."""

    def __init__(self, client: RedisClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._scripts = load_scripts()

    async def server_ids(self, slot: Slot) -> ServerIds:  # noqa: ARG002 - one server holds all slots here
        """Of the server that is meant now: after a failover the old master goes on answering whoever is still
        connected."""
        await self._client.look_again()
        found = info.parsed(await self._client.execute("INFO", "server", "replication"))
        try:
            return ServerIds(run_id=found["run_id"], replid=found["master_replid"])
        except KeyError as missing:
            raise StockUnavailable("redis", f"its INFO has no {missing}") from None

    async def peek(self, slot: Slot, candidates: Sequence[Candidate], limit_per_buyer: int) -> Peeked | Lost:
        reply = await self._run(self._scripts.peek, slot, limit_per_buyer, replies.pack_candidates(candidates))
        ids = [candidate.reservation_id for candidate in candidates]
        return lost_of(reply) or Peeked(answers=replies.peek_answers(slot, ids, reply))

    async def find(self, slot: Slot, reservation_ids: Sequence[ReservationId]) -> dict[ReservationId, Record] | Lost:
        found: dict[ReservationId, Record] = {}
        for ids in _chunks(reservation_ids, FIND_MAX):
            packed = replies.pack([(replies.local(id_),) for id_ in ids])
            reply = await self._run(self._scripts.peek, slot, "", packed)
            if lost := lost_of(reply):
                return lost
            pairs = zip(ids, replies.triples(slot, reply[2:]), strict=True)
            found |= {id_: record for id_, (_, record) in pairs if record is not None}
        return found

    async def reserve(
        self, slot: Slot, batch: BatchMessage, limit_per_buyer: int, late: LateRules | None = None
    ) -> Reserved | Fenced | Lost:
        reply = await self._run(
            self._scripts.reserve,
            slot,
            self._clock.offset_ms(),
            batch.batch_id,
            batch.created_at_ms,
            limit_per_buyer,
            "" if late is None else late.deadline_ms,
            replies.pack_candidates(batch.candidates),
            encode(batch),
        )
        ids = [candidate.reservation_id for candidate in batch.candidates]
        if lost := lost_of(reply):
            return lost
        if reply[0] == b"fenced":
            pairs = zip(ids, replies.triples(slot, reply[1:]), strict=True)
            return Fenced(known={id_: record for id_, (_, record) in pairs if record is not None})
        return Reserved(answers=replies.reserve_answers(slot, ids, reply), replayed=bool(number(reply[1])))

    async def resolve(self, slot: Slot, batch_id: BatchId) -> BatchRecord | FenceWritten | Lost:
        reply = await self._run(self._scripts.resolve, slot, batch_id)
        if reply[0] == b"fenced":
            return FenceWritten()
        winners = frozenset(replies.full(slot, replies.text(id_)) for id_ in reply[1:])
        return lost_of(reply) or BatchRecord(winners=winners)

    async def batches(self, slot: Slot, batch_ids: Sequence[BatchId]) -> Batches | Lost:
        found: dict[BatchId, StoredBatch] = {}
        unreadable: set[BatchId] = set()
        for ids in _chunks(batch_ids, BATCHES_MAX):
            part = await self._batches(slot, "ids", replies.pack(ids))
            if isinstance(part, Lost):
                return part
            found |= part.found
            unreadable |= part.unreadable
        return Batches(found=found, unreadable=frozenset(unreadable))

    async def undelivered(self, slot: Slot, decided_before_ms: int, limit: int) -> Batches | Lost:
        return await self._batches(slot, "undelivered", decided_before_ms, limit)

    async def confirm(self, slot: Slot, effects: Mapping[ReservationId, Effect]) -> Applied | Lost:
        return await self._apply(self._scripts.confirm, slot, effects)

    async def end(self, slot: Slot, effects: Mapping[ReservationId, Effect]) -> Applied | Lost:
        return await self._apply(self._scripts.end, slot, effects, self._clock.offset_ms())

    async def adjust(self, slot: Slot, adjustment_id: str, delta: int) -> Adjusted | TooFewLeft | Lost:
        reply = await self._run(self._scripts.adjust, slot, adjustment_id, delta)
        if reply[0] == b"too_few":
            return TooFewLeft(available=number(reply[1]))
        return lost_of(reply) or Adjusted()

    async def count(self, slot: Slot) -> SlotCount | Lost:
        reply = await self._run(self._scripts.count, slot)
        if lost := lost_of(reply):
            return lost
        granted, available, held, queued, ordered, buyers_units, undelivered = map(number, reply[1:])
        return SlotCount(
            granted=granted,
            available=available,
            held=held,
            queued=queued,
            ordered=ordered,
            buyers_units=buyers_units,
            undelivered_batches=undelivered,
        )

    async def load_records(self, slot: Slot, server: ServerIds, records: Sequence[Record]) -> Loaded | LoadRefused:
        pairs = [(replies.local(it.reservation_id), replies.parts_of(it)) for it in records]
        return await self._load_chunks(slot, server, "records", pairs)

    async def load_stock(
        self, slot: Slot, server: ServerIds, *, available: int, buyer_units: Mapping[BuyerId, int], held: int
    ) -> Loaded | LoadRefused:
        reply = await self._load_chunks(slot, server, "buyers", list(buyer_units.items()))
        if isinstance(reply, LoadRefused):
            return reply
        return await self._load(slot, server, "stock", available, held)

    async def stamp(self, slot: Slot, server: ServerIds, *, now_ms: int) -> Loaded | LoadRefused:
        return await self._load(slot, server, "stamp", now_ms)

    async def unlink(self, slot: Slot) -> None:
        await self._client.execute("UNLINK", key(slot, META))
        await self._client.execute("UNLINK", *keys(slot, DATA))

    async def problems(self) -> Sequence[str]:
        return await problems_of(self._client, self._scripts)

    async def advice(self) -> Sequence[str]:
        return await advice_of(self._client)

    async def close(self) -> None:
        await self._client.close()

    async def _run(self, script: Script, slot: Slot, *arguments: Argument) -> Reply:
        """`lost` is believed from a fresh connection only: an old one may lead to a master that has a successor.
        It says that nothing was written, so it may be asked again."""
        reply = await script.run(self._client, slot, *arguments)
        if reply[0] == b"lost":
            await self._client.look_again()
            reply = await script.run(self._client, slot, *arguments)
        return reply

    async def _batches(self, slot: Slot, *arguments: Argument) -> Batches | Lost:
        reply = await self._run(self._scripts.batches, slot, *arguments)
        if lost := lost_of(reply):
            return lost
        stored = dict(replies.stored_batch(slot, entry) for entry in reply[1:])
        return Batches(
            found={id_: batch for id_, batch in stored.items() if batch is not None},
            unreadable=frozenset(id_ for id_, batch in stored.items() if batch is None),
        )

    async def _apply(
        self, script: Script, slot: Slot, effects: Mapping[ReservationId, Effect], *arguments: Argument
    ) -> Applied | Lost:
        """Lost half-way: what was applied stays so, and a repeat changes nothing of it."""
        changed: set[ReservationId] = set()
        for part in _chunks(list(effects.items()), EFFECTS_MAX):
            reply = await self._run(script, slot, *arguments, replies.pack_effects(dict(part)))
            if lost := lost_of(reply):
                return lost
            changed.update(replies.full(slot, replies.text(id_)) for id_ in reply[1:])
        return Applied(changed=frozenset(changed))

    async def _load_chunks(
        self, slot: Slot, server: ServerIds, mode: str, rows: Sequence[tuple[str, object]]
    ) -> Loaded | LoadRefused:
        for part in _chunks(rows, LOAD_MAX) if rows else [rows]:
            reply = await self._load(slot, server, mode, replies.pack(part))
            if isinstance(reply, LoadRefused):
                return reply
        return Loaded()

    async def _load(self, slot: Slot, server: ServerIds, mode: str, *arguments: Argument) -> Loaded | LoadRefused:
        reply = await self._run(self._scripts.load, slot, server.run_id, server.replid, mode, *arguments)
        return replies.refused_of(reply) or Loaded()


def _chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
