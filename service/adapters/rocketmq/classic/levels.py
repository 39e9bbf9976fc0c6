"""A broker's delay levels, found by their length: their numbers are what its own `messageDelayLevel` says."""

from __future__ import annotations

from dataclasses import dataclass

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EARLY_SHARE, EARLY_MAX_S = 0.01, 1.0
"""A level may be that much shorter than what remains: no more than a hundredth of it, and a second at most. The clocks
of two processes differ, and 15m must not become 20m for a few milliseconds: a message that comes early is armed again.
A broker itself counts in milliseconds and is never early (seen)."""


@dataclass(frozen=True, kw_only=True)
class DelayLevel:
    """`number` counts from 1: it is what a message or a request carries."""

    number: int
    name: str
    seconds: int


@dataclass(frozen=True, kw_only=True)
class DelayLevels:
    """`text` is the broker's list as it says it; `levels` are never none, and sorted by their length."""

    text: str
    levels: tuple[DelayLevel, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """ValueError: the list has no level, or one that is no number with s, m, h or d."""
        found = [_level(number, name) for number, name in enumerate(text.split(), start=1)]
        if not found:
            raise ValueError("its messageDelayLevel has no level")
        return cls(text=text, levels=tuple(sorted(found, key=lambda level: (level.seconds, level.number))))

    @property
    def longest(self) -> DelayLevel:
        return self.levels[-1]

    def not_shorter(self, delay_s: float) -> DelayLevel | None:
        """The shortest that is at least so long. None: even the longest is shorter."""
        return next((level for level in self.levels if level.seconds >= delay_s), None)

    def until(self, remaining_s: float) -> DelayLevel | None:
        """For a message that is due then, and may come `EARLY_MAX_S` early. None: it would come too early by any."""
        return self.not_shorter(remaining_s - min(EARLY_MAX_S, remaining_s * EARLY_SHARE))


def _level(number: int, name: str) -> DelayLevel:
    count, unit = name[:-1], UNITS_S.get(name[-1:])
    if unit is None or not (count.isascii() and count.isdecimal()):
        raise ValueError(f"its messageDelayLevel has {name!r}, which is no number with s, m, h or d")
    return DelayLevel(number=number, name=name, seconds=int(count) * unit)
