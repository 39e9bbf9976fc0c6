"""What is measured, by name. A strategy that is compared with Dropgate is its own name, a plain string."""

from __future__ import annotations

from enum import StrEnum

from bench.figures import Measure


class Subject(StrEnum):
    """Floors have `Measure.FLOOR`. A name is what a table shows."""

    FLOOR_ECHO = "Starlette, echo"
    FLOOR_EVALSHA = "Starlette + one EVALSHA"
    REDIS_ALONE = "Redis alone, one EVALSHA"
    RAW_INSERT = "multi-row INSERT alone"
    JAVA_HALF = "RocketMQ Java client, bare half messages"
    HALF_SEND_5 = "half message alone, rocketmq5"
    HALF_SEND_4 = "half message alone, rocketmq4"
    ONE_HALF_5 = "one half message per order, rocketmq5"
    ONE_HALF_4 = "one half message per order, rocketmq4"
    DROPGATE_5 = "Dropgate, rocketmq5"
    DROPGATE_4 = "Dropgate, rocketmq4"
    DROPGATE_SQL = "Dropgate, sql"
    ENGINE_5 = "Dropgate without HTTP, rocketmq5"
    ENGINE_4 = "Dropgate without HTTP, rocketmq4"
    ENGINE_SQL = "Dropgate without HTTP, sql"


DROPGATE = (Subject.DROPGATE_5, Subject.DROPGATE_4)
"""Over HTTP, on each transport."""
ENGINE = (Subject.ENGINE_5, Subject.ENGINE_4)

_OURS = frozenset({*DROPGATE, *ENGINE, Subject.DROPGATE_SQL, Subject.ENGINE_SQL})

OWN_PROCESS = "dropgate"
"""How the name of a process of Dropgate begins, in a `Usage`; its native child's does too."""

MEANT_TO_FAIL = "naive"
"""How the name of a strategy begins that is there to be seen failing."""

_FLOORS: dict[str, Subject] = {
    Subject.DROPGATE_5: Subject.FLOOR_EVALSHA,
    Subject.DROPGATE_4: Subject.FLOOR_EVALSHA,
    Subject.DROPGATE_SQL: Subject.FLOOR_EVALSHA,
    Subject.ENGINE_5: Subject.JAVA_HALF,
    Subject.ENGINE_4: Subject.JAVA_HALF,
    Subject.ONE_HALF_5: Subject.JAVA_HALF,
    Subject.ONE_HALF_4: Subject.JAVA_HALF,
}


def floor_of(subject: str, measure: Measure) -> Subject | None:
    """What the rate of a subject is a multiple of; None: of nothing."""
    if measure is Measure.DRAIN:
        return Subject.RAW_INSERT
    if measure in (Measure.ACCEPT, Measure.REJECT, Measure.HOSTILE):
        return _FLOORS.get(subject)
    return None


def is_ours(subject: str) -> bool:
    return subject in _OURS


def may_fail(subject: str) -> bool:
    """Its audit need not be clean."""
    return subject.startswith(MEANT_TO_FAIL)
