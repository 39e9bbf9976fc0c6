"""I7 from outside: whatever a client was told of a reservation must never be contradicted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.domain.reservation import TRANSITIONS, Status

FIXED_FACTS = ("sale_id", "buyer_id", "quantity", "amount", "currency", "order_no")
"""Once told, these never change."""


def _closure() -> dict[Status, frozenset[Status]]:
    """Each state with all that may come after it, directly or later: a client does not see every step.

    A review is no step to pass unseen: a person ends it, and the demo has none. `cancelled` does not follow `paid`.
    """
    reach = {status: set(onward) for status, onward in TRANSITIONS.items()}
    for _ in Status:
        for onward in reach.values():
            onward |= {later for status in onward - {Status.UNDER_REVIEW} for later in reach[status]}
    return {status: frozenset(onward | {status}) for status, onward in reach.items()}


MAY_BE_TOLD_AFTER = _closure()


@dataclass(slots=True)
class _Told:
    status: Status | None = None
    never: str | None = None
    facts: dict[str, object] = field(default_factory=dict)


class Witness:
    """Listens to every answer. `contradictions` has a sentence for each pair of answers that cannot both be true."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        self.contradictions: list[str] = []

    def reservation(self, body: Mapping[str, object]) -> Status:
        """A reservation object: from a reserve, a cancel or a GET."""
        id_, status = str(body["id"]), Status(str(body["status"]))
        told = self._told.setdefault(id_, _Told())
        if told.never is not None:
            self._contradiction(id_, f"{told.never}, later {status}")
            told.never = None
        if told.status is not None and status not in MAY_BE_TOLD_AFTER[told.status]:
            self._contradiction(id_, f"{told.status}, later {status}")
        self._compare_facts(id_, told, body)
        told.status = status
        return status

    def refused(self, id_: str, code: str, *, final: bool) -> None:
        """A 409 to a reserve. It binds nothing unless it says `final`; but who was told of a reservation has one."""
        told = self._told.get(id_)
        if told is not None and told.status is not None:
            self._contradiction(id_, f"{told.status}, later {code}")
        if final:
            self._told.setdefault(id_, _Told()).never = f"{code}, final"

    def unknown(self, id_: str) -> None:
        """A 404 to a GET: it holds nothing and never will, of what was answered so far."""
        told = self._told.get(id_)
        if told is not None and told.status is not None:
            self._contradiction(id_, f"{told.status}, later 404")

    def told(self, id_: str) -> Status | None:
        """The last status that was told of this id."""
        told = self._told.get(id_)
        return None if told is None else told.status

    def statuses(self) -> dict[Status, int]:
        """How many reservations were last told to be in each state."""
        counts = dict.fromkeys(Status, 0)
        for told in self._told.values():
            if told.status is not None:
                counts[told.status] += 1
        return counts

    def _compare_facts(self, id_: str, told: _Told, body: Mapping[str, object]) -> None:
        for name in FIXED_FACTS:
            value = body.get(name)
            if value is None:
                continue
            before = told.facts.setdefault(name, value)
            if before != value:
                self._contradiction(id_, f"{name} {before}, later {value}")

    def _contradiction(self, id_: str, what: str) -> None:
        self.contradictions.append(f"{id_}: told {what}")
