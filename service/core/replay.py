"""Check-back replay (design §3.8, §5): an operator looks at what got stuck, and has it brought to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from service.core.replay_acts import ReplayActs, resumed_by
from service.core.replay_cases import Case, Finder, Looked, Resume
from service.domain.errors import DropgateError, NotFound
from service.domain.replay import Item, Outcome, Replay, ReplayId, Scope, Source, check_why, is_replay_id, new_replay_id
from service.observability import metrics
from service.observability.actions import Action
from service.observability.log import log, warn
from service.ports.clock import Clock
from service.ports.replays import ReplayStore

Progress = Callable[[int, int], None]
"""How many items are done, of how many."""


NewFinder = Callable[[], Finder]
"""A finder is one look's: it remembers who did not answer."""


@dataclass(frozen=True, kw_only=True)
class _Noted:
    """An item, and whether SQL has it so."""

    item: Item
    noted: bool = True


class ReplayService:
    def __init__(
        self, *, finders: Mapping[Source, NewFinder], acts: ReplayActs, store: ReplayStore, clock: Clock
    ) -> None:
        self._finders = finders
        self._acts = acts
        self._store = store
        self._clock = clock

    async def look(self, scope: Scope, *, actor: str) -> Replay:
        """The dry run: what is there, what would be done and why. It changes nothing, and is not stored.

        InvalidRequest: a scope that cannot be looked up. NotFound: its sale.
        """
        looked = await self._find(scope)
        return self._replay(None, scope, None, actor, looked)

    async def act(self, scope: Scope, *, why: str, actor: str, progress: Progress | None = None) -> Replay:
        """Do it, item by item, each noted in SQL before and after. What the broker has accepted is `pending`.

        Where SQL goes away midway, or refuses a row, the replay ends there: its items say how far it came, and it may
        be run again.
        """
        check_why(why)
        looked = await self._find(scope)
        replay_id = new_replay_id()
        replay = self._replay(replay_id, scope, why, actor, looked)
        await self._store.create(replay)
        metrics.REPLAYS.labels(scope.source.value).inc()
        items = list(replay.items)
        for position, case in enumerate(looked.cases):
            done = await self._noted(replay, replay_id, position, case)
            items[position] = done.item
            if not done.noted:
                return replace(replay, items=tuple(items))
            if progress is not None:
                progress(position + 1, len(items))
        return await self._finished(replace(replay, items=tuple(items)), replay_id)

    async def get(self, replay_id: ReplayId) -> Replay:
        """A replay that acted, each reservation as it stands now. What was pending has ended once its reservations say
        so. NotFound."""
        stored = await self._store.replay(replay_id) if is_replay_id(replay_id) else None
        if stored is None:
            raise NotFound("replay", replay_id)
        return replace(stored, items=await self._acts.as_they_stand(stored.items))

    async def _find(self, scope: Scope) -> Looked:
        scope.check()
        return await self._finders[scope.source]().find(scope)

    def _replay(self, id_: ReplayId | None, scope: Scope, why: str | None, actor: str, looked: Looked) -> Replay:
        return Replay(
            id=id_,
            scope=scope,
            why=why,
            actor=actor,
            created_at_ms=self._clock.now_ms(),
            more=looked.more,
            items=tuple(case.item for case in looked.cases),
        )

    async def _noted(self, replay: Replay, replay_id: ReplayId, position: int, case: Case) -> _Noted:
        if case.act is None:
            return _Noted(item=case.item)
        begun = replace(case.item, outcome=Outcome.PENDING, why="It was begun. How it ended was not noted.")
        item = case.item
        try:
            claims = isinstance(case.act, Resume)
            holder = await self._store.begin(replay, position, begun, self._clock.now_ms(), claims=claims)
            item = begun
            item = await self._acts.act(case) if holder is None else resumed_by(case.item, holder)
            await self._store.end(replay_id, position, item, self._clock.now_ms())
        except DropgateError as error:
            # Its caller must hear of what was acted on before, and the id to look at it again.
            warn(Action.REPLAYED, **_facts(replay, item), error=str(error))
            return _Noted(item=item, noted=False)
        metrics.REPLAY_ITEMS.labels(replay.scope.source.value, item.outcome.value).inc()
        log(Action.REPLAYED, **_facts(replay, item))
        return _Noted(item=item)

    async def _finished(self, replay: Replay, replay_id: ReplayId) -> Replay:
        at_ms = self._clock.now_ms()
        try:
            await self._store.finish(replay_id, at_ms)
        except DropgateError as error:
            warn(Action.REPLAYED, replay_id=replay_id, actor=replay.actor, error=str(error))
            return replay
        return replace(replay, finished_at_ms=at_ms)


def _facts(replay: Replay, item: Item) -> dict[str, str | None]:
    return {
        "replay_id": replay.id,
        "actor": replay.actor,
        "source": replay.scope.source.value,
        "outcome": item.outcome.value,
        "sale_id": item.sale_id,
        "batch_id": item.batch_id,
        "message_id": item.message_id,
    }
