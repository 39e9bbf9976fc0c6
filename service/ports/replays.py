"""The memory of replays: what was asked, by whom, and how far each item came. In SQL, so that a crash hides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service.domain.replay import Item, Replay, ReplayId


class ReplayStore(Protocol):
    async def create(self, replay: Replay) -> None:
        """The replay with all its items, before the first is acted on."""

    async def begin(self, replay: Replay, position: int, item: Item, at_ms: int, *, claims: bool) -> ReplayId | None:
        """Before the act, in one transaction: the item is begun, as it is given here, and the audit says by whom and
        why.

        With `claims` its message is taken for this replay, for CLAIM_MS: where another replay's claim is alive, that
        replay's id is returned, and nothing was written.
        """

    async def end(self, replay_id: ReplayId, position: int, item: Item, at_ms: int) -> None:
        """What became of it. `waiting`: nothing was done, and this replay's claim on its message goes."""

    async def finish(self, replay_id: ReplayId, at_ms: int) -> None:
        """Every item has been come to."""

    async def replay(self, replay_id: ReplayId) -> Replay | None:
        """As it was written. Its reservations are ids only: they stand at `in_doubt`."""

    async def claims(self, message_ids: Sequence[str], at_ms: int) -> dict[str, ReplayId]:
        """The claims on these messages that are alive at this moment."""
