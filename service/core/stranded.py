"""Messages that the broker gave up: half messages whose check-backs are used up, and dead letters of the order group.
Read only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.directory import SaleDirectory
from service.core.named import NamedIds, Queued
from service.core.one_look import OneLook
from service.core.replay_cases import (
    Act,
    Case,
    DecideLetter,
    Forget,
    Looked,
    Resume,
    bounded,
    if_old_enough,
    left_alone,
)
from service.core.standings import Standings
from service.domain.batch import BatchMessage, decode_batch
from service.domain.errors import NotFound, UndecodableMessage, UnknownSchema
from service.domain.ids import BatchId, ReservationId
from service.domain.replay import BATCHES_MAX, LOOK_MAX, Item, Now, Outcome, ReplayId, Scope, Source
from service.domain.replay_plan import MessageFacts, plan_message
from service.domain.reservation import Status
from service.domain.sale import Sale
from service.ports.messaging import Transport
from service.ports.replays import ReplayStore

NAMES = {Source.DISCARDED: "discarded half message", Source.DEAD_LETTER: "dead letter"}


@dataclass(frozen=True, kw_only=True)
class _Message:
    message_id: str
    key: str
    body: bytes
    born_at_ms: int


class StrandedFinder:
    """For one look. `group` is the order consumers'."""

    def __init__(
        self,
        *,
        directory: SaleDirectory,
        look: OneLook,
        transport: Transport,
        group: str,
        replays: ReplayStore,
        standings: Standings,
        named: NamedIds,
    ) -> None:
        self._directory = directory
        self._slots = look
        self._transport = transport
        self._group = group
        self._replays = replays
        self._standings = standings
        self._named = named

    async def find(self, scope: Scope) -> Looked:
        if scope.sale_id is not None:
            await self._directory.current(scope.sale_id)
        messages = await self._messages(scope.source)
        search = _Search(scope=scope, now_ms=self._slots.now_ms(), claims=await self._claims(scope.source, messages))
        cut_off = len(messages) >= LOOK_MAX
        for message in messages:
            if search.acting > BATCHES_MAX or self._slots.is_over():
                cut_off = True
                break
            await self._look(search, message)
        missed = await self._missed(search, cut_off=cut_off)
        return bounded([*search.cases, *missed], BATCHES_MAX, more=cut_off)

    async def _messages(self, source: Source) -> list[_Message]:
        found = (
            await self._transport.discarded(LOOK_MAX)
            if source is Source.DISCARDED
            else await self._transport.dead_letters(self._group, LOOK_MAX)
        )
        return [_Message(message_id=it.message_id, key=it.key, body=it.body, born_at_ms=it.born_at_ms) for it in found]

    async def _claims(self, source: Source, messages: Sequence[_Message]) -> dict[str, ReplayId]:
        if source is not Source.DISCARDED or not messages:
            return {}
        return await self._replays.claims([message.message_id for message in messages], self._slots.now_ms())

    # --- a message ----------------------------------------------------------------------------------------------------

    async def _look(self, search: _Search, message: _Message) -> None:
        try:
            batch = decode_batch(message.body)
        except UndecodableMessage as error:
            search.note_undecodable(message, error)
            return
        ids = [candidate.reservation_id for candidate in batch.candidates]
        if search.picks(batch, ids, message):
            search.note(batch, ids, await self._case(search, message, batch, ids))

    async def _case(
        self, search: _Search, message: _Message, batch: BatchMessage, ids: Sequence[ReservationId]
    ) -> Case:
        facts = await self._facts(search, message, batch, ids)
        plan = plan_message(facts)
        item = Item(
            outcome=plan.outcome,
            why=plan.why,
            message_id=message.message_id,
            batch_id=batch.batch_id,
            sale_id=batch.sale_id,
            epoch=batch.epoch,
            born_at_ms=message.born_at_ms,
            reservations=tuple(facts.reservations),
        )
        return if_old_enough(Case(item=item, act=_act(plan.outcome, facts)), search.scope, search.now_ms)

    async def _facts(
        self, search: _Search, message: _Message, batch: BatchMessage, ids: Sequence[ReservationId]
    ) -> MessageFacts:
        sale = await self._sale(batch)
        if sale is None:
            return MessageFacts(source=search.scope.source, batch=batch, sale=None)
        stand = await self._standings.of(sale, ids, epoch=batch.epoch)
        return MessageFacts(
            source=search.scope.source,
            batch=batch,
            sale=sale,
            reservations=stand.reservations,
            losers=await self._standings.losers(batch.batch_id),
            readable=stand.readable,
            resumed_by=search.claims.get(message.message_id),
        )

    async def _sale(self, batch: BatchMessage) -> Sale | None:
        try:
            return await self._directory.current(batch.sale_id)
        except NotFound:
            return None

    # --- named, and in no message -------------------------------------------------------------------------------------

    async def _missed(self, search: _Search, *, cut_off: bool) -> list[Case]:
        """`cut_off`: there are more messages than were looked at."""
        outcome = Outcome.WAITING if cut_off else Outcome.REFUSED
        where = f"It is in no {NAMES[search.scope.source]}{' that was looked at' if cut_off else ''}."
        cases: list[Case] = []
        for id_ in search.scope.reservation_ids:
            if id_ not in search.reservations:
                known = await self._named.reservation(search.scope, id_)
                cases.append(_queued(outcome, where, known) if isinstance(known, Queued) else known)
        missed = [batch_id for batch_id in search.scope.batch_ids if batch_id not in search.batches]
        return cases + [Case(item=Item(outcome=outcome, why=where, batch_id=batch_id)) for batch_id in missed]


def _queued(outcome: Outcome, where: str, queued: Queued) -> Case:
    id_ = queued.record.reservation_id
    now = Now(reservation_id=id_, standing=Status.QUEUED)
    why = f"It is queued. {where} Look at the source {Source.IN_DOUBT}."
    return left_alone(outcome, why, id_, sale_id=queued.sale.id, now=now)


def _act(outcome: Outcome, facts: MessageFacts) -> Act | None:
    if outcome is Outcome.NO_OP:
        return Forget(source=facts.source)
    if outcome is not Outcome.PLANNED:
        return None
    return Resume() if facts.source is Source.DISCARDED else DecideLetter(batch=facts.batch)


class _Search:
    """What one look has found so far, and which of the named ids."""

    def __init__(self, *, scope: Scope, now_ms: int, claims: dict[str, ReplayId]) -> None:
        self.scope = scope
        self.now_ms = now_ms
        self.claims = claims
        self.cases: list[Case] = []
        self.reservations: set[ReservationId] = set()
        self.batches: set[BatchId] = set()

    @property
    def acting(self) -> int:
        return sum(case.act is not None for case in self.cases)

    def picks(self, batch: BatchMessage, ids: Sequence[ReservationId], message: _Message) -> bool:
        if not self.scope.picks(batch.sale_id, batch.batch_id, ids):
            return False
        return self.scope.names_ids or message.born_at_ms <= self.now_ms - self.scope.older_than_s * 1000

    def note(self, batch: BatchMessage, ids: Sequence[ReservationId], case: Case) -> None:
        self.cases.append(case)
        self.reservations.update(ids)
        self.batches.add(batch.batch_id)

    def note_undecodable(self, message: _Message, error: UndecodableMessage) -> None:
        """Its sale and its reservations are not known: it is shown where nothing is named, or its key is."""
        by_key = BatchId(message.key) in self.scope.batch_ids
        old = message.born_at_ms <= self.now_ms - self.scope.older_than_s * 1000
        if not by_key and (self.scope.sale_id is not None or self.scope.names_ids or not old):
            return
        newer = isinstance(error, UnknownSchema)
        why = "A newer release wrote it, and can read it." if newer else f"It cannot be read: {error.why}."
        item = Item(
            outcome=Outcome.WAITING if newer else Outcome.REFUSED,
            why=why,
            message_id=message.message_id,
            batch_id=BatchId(message.key) if by_key else None,
            born_at_ms=message.born_at_ms,
        )
        self.cases.append(Case(item=item))
        self.batches.add(BatchId(message.key))
