"""How far a run is: the line that is said as each step begins, with what is left of the whole run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

FEW = 3
"""So many steps are through, and half of a round, before the time left is guessed: floors come first, and are short."""
SECONDS_UNTIL_S = 100.0
"""Below it minutes would say too little."""


@dataclass(kw_only=True)
class Course:
    """`planned`: the names of all steps of all rounds. A step lasts until the next one begins: what is started between
    them takes time as well."""

    planned: Iterable[str]
    rounds: int
    clock: Callable[[], float] = time.monotonic
    _begun: list[tuple[str, float]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._left = Counter(self.planned)
        self._steps = self._left.total()

    def begin(self, name: str, round_: int) -> str:
        """Such as `[12/148] round 2 of 3: Dropgate, rocketmq5 accepts, 64 clients (about 14 min left)`."""
        self._begun.append((name, self.clock()))
        left_s = self._left_s()
        self._left[name] -= 1
        where = f"round {round_} of {self.rounds}: " if self.rounds > 1 else ""
        guess = "" if left_s is None else f" ({_about(left_s)} left)"
        return f"[{len(self._begun)}/{self._steps}] {where}{name}{guess}"

    def _left_s(self) -> float | None:
        """For this step and all after it: as long as it took in earlier rounds; a new one, as long as any. None: too
        few are through."""
        took = self._took_s()
        if len(self._begun) <= max(FEW, self._steps // (2 * self.rounds)):
            return None
        whole_s = [lasted_s for lasts_s in took.values() for lasted_s in lasts_s]
        return sum(count * fmean(took.get(name, whole_s)) for name, count in self._left.items())

    def _took_s(self) -> dict[str, list[float]]:
        took: dict[str, list[float]] = {}
        for (name, began_s), (_, ended_s) in zip(self._begun, self._begun[1:], strict=False):
            took.setdefault(name, []).append(ended_s - began_s)
        return took


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < SECONDS_UNTIL_S else f"about {seconds / 60:.0f} min"
