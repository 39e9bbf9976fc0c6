"""A replay that finds what a test says, and remembers what it was asked."""

from __future__ import annotations

from service.core.replay import Progress
from service.domain.replay import Item, Replay, ReplayId, Scope, Source

NOW_MS = 1_800_000_000_000


class FakeReplays:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.more = False
        self.finished = True
        self.error: Exception | None = None
        self.calls: list[tuple[object, ...]] = []

    async def look(self, scope: Scope, *, actor: str) -> Replay:
        self.calls.append(("look", scope, actor))
        return self._found(None, scope, None, actor)

    async def act(self, scope: Scope, *, why: str, actor: str, progress: Progress | None = None) -> Replay:
        self.calls.append(("act", scope, why, actor))
        if progress is not None:
            progress(1, 1)
        return self._found(ReplayId("rp-1"), scope, why, actor)

    async def get(self, replay_id: ReplayId) -> Replay:
        self.calls.append(("get", replay_id))
        return self._found(replay_id, Scope(source=Source.IN_DOUBT), "a reason", "anna")

    def _found(self, id_: ReplayId | None, scope: Scope, why: str | None, actor: str) -> Replay:
        if self.error is not None:
            raise self.error
        return Replay(
            id=id_,
            scope=scope,
            why=why,
            actor=actor,
            created_at_ms=NOW_MS,
            more=self.more,
            items=tuple(self.items),
            finished_at_ms=NOW_MS if id_ is not None and self.finished else None,
        )
